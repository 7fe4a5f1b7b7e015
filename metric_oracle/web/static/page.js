// one hand-written script
