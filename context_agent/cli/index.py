import click


@click.command()
def index() -> None:
    """todo"""
