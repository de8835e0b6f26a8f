"""Which laws of a contract are broken, for tests of the contracts themselves."""


def laws(contract: type) -> list[str]:
    """The names of the laws of a contract."""
    return [name for name in vars(contract) if name.startswith("test_")]


def broken_laws(contract: type, tested: object) -> list[str]:
    """The names of the laws of a contract that fail for an instance of a subclass."""
    return [law for law in laws(contract) if not _keeps(tested, law)]


def _keeps(tested: object, law: str) -> bool:
    try:
        getattr(tested, law)()
    except AssertionError:
        return False
    return True
