"""stub"""
def tokens() -> None:
    """stub"""
