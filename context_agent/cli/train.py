import click


@click.command()
def train() -> None:
    """todo"""
