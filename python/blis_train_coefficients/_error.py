"""The one kind of error of this package."""


class CoefficientError(ValueError):
    """An input that blis-train refuses too; code is blis-train's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__("%s: %s" % (code, message))
        self.code = code
