def from_pymc(model):
    raise NotImplementedError
def from_bambi(model):
    raise NotImplementedError
