def as_blackjax(kernel, posterior):
    raise NotImplementedError
