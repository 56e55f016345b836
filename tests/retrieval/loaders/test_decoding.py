"""Text that is not UTF-8 and declares no encoding is read in an encoding of its language."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.retrieval.loaders.decoding import decode
from tests.support.growth import seconds

POLISH = (
    "Młynarz otworzył śluzę, ponieważ woda podniosła się powyżej muru. Potem wrócił do młyna i sprawdził koła, które "
    "stały od wielu dni. Żona młynarza czekała już na niego z obiadem, a dzieci bawiły się nad rzeką."
)
CZECH = (
    "Mlynář otevřel stavidlo, protože voda stoupla nad zeď. Potom se vrátil do mlýna a prohlédl kola, která už mnoho "
    "dní stála. Mlynářova žena na něj čekala s obědem a děti si hrály u řeky, kde byla voda mělká a průhledná."
)
RUSSIAN = "Мельник открыл шлюз, потому что вода поднялась выше стены. Потом он вернулся на мельницу и проверил колёса."
FRENCH = (
    "Le meunier ouvrit l'écluse, parce que l'eau était montée au-dessus du mur. Ensuite, il retourna à la forge, où le "
    "maître l'attendait déjà. Sa femme préparait le dîner, et les enfants jouaient près de la rivière."
)
SPANISH = (
    "El molinero abrió la compuerta porque el agua había subido por encima del muro. Después volvió al molino y revisó "
    "las ruedas. Su mujer lo esperaba ya con la comida, y los niños jugaban junto al río."
)
TURKISH = (
    "Değirmenci savağı açtı, çünkü su duvarın üstüne çıkmıştı. Sonra değirmene döndü ve günlerdir duran çarkları "
    "inceledi. Karısı onu yemekle bekliyordu, çocuklar ise ırmağın kıyısında oynuyordu."
)
HEBREW = "הטוחן פתח את הסכר כי המים עלו מעל החומה. אחר כך חזר לטחנה ובדק את הגלגלים."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (POLISH, "cp1250"),
        (POLISH, "iso8859-2"),
        (CZECH, "cp1250"),
        (CZECH, "iso8859-2"),
        (TURKISH, "cp1254"),
        (HEBREW, "cp1255"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (FRENCH, "cp1252"),
        (SPANISH, "cp1252"),
    ],
)
def test_the_language_of_a_text_shows_its_encoding(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "mill.txt").write_bytes(text.encode(encoding))
    (tmp_path / "mills.csv").write_bytes(f"text\n{text}".replace(",", " ").encode(encoding))
    report = LoadReport()
    documents = list(load(tmp_path, report=report))
    assert [document.text for document in documents] == [text, text.replace(",", " ")]
    name = "Windows-1252" if encoding == "cp1252" else encoding
    assert [f"was read as {name}, because it is not UTF-8" in notice.reason for notice in report.notices] == [True] * 2


def test_lines_in_another_encoding_are_read_in_a_text_of_several_files() -> None:
    good = "Der Müller öffnet früh die Schütze.\n".encode()
    text = decode(good * 5 + "Größe\n".encode("cp1252") + b"it\xe2\x80s cut\n" + b"M\xc3\r\n" + good)
    assert text.text.splitlines()[5:8] == ["Größe", "it\ufffds cut", "M\ufffd"]
    assert text.note == (
        "2 damaged characters replaced; 2 characters read as Windows-1252, because a line is not UTF-8"
    )


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Proszę o płatność do piątku. Dziękuję, Małgorzata", "cp1250"),
        ("Vážení zákazníci, v pátek bude obchod zavřený.", "cp1250"),
        ("Schöne Grüße, Jürgen Müller. Die Straße ist gesperrt.", "cp1252"),
        ("Où est le château ? À côté de la forêt, là-bas.", "cp1252"),
        ("Perché è così? È già più tardi, però c'è ancora.", "cp1252"),
        ("«Oui», «non», «peut-être»", "cp1252"),
    ],
)
def test_a_short_note_is_read_in_the_encoding_of_its_language(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_a_longer_western_text_is_not_read_as_czech() -> None:
    text = "Caffè, tè, più zucchero: è già lì. Così è per il signor Müller.\n" * 4
    assert decode(text.encode("cp1252")).text == text


def test_a_few_letters_are_read_as_western() -> None:
    assert decode("Die Mühle".encode("cp1252")).encoding == "cp1252"


@pytest.mark.parametrize("data", [b"\xe9 " * 100_000, "обсерватория".encode("koi8-r") * 9_000, os.urandom(2**18)])
def test_hostile_texts_take_linear_time(data: bytes) -> None:
    def decoded(data: bytes) -> None:
        with suppress(DataError):
            decode(data.replace(b"\0", b" "))

    assert seconds(decoded, data) < 5
