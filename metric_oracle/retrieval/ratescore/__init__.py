"""RaTEScore over given entities. It lies here and not under ``kernels/`` as long as it is NumPy alone."""
