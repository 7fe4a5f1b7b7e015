"""Top-k selection and ties."""
