"""stub"""
def demo() -> None:
    """stub"""
