"""stub"""
def evaluate() -> None:
    """stub"""
