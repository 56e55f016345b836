"""Numbers with a unit in the fields of a record."""

from __future__ import annotations

import pytest

from context_agent.text.quantities import record_quantities
from tests.support.growth import MOST_GROWTH, growth


@pytest.mark.parametrize(
    ("text", "metadata", "amounts"),
    [
        ("name: Tarn\nprice_eur: 249.00", {}, [("money", 249)]),
        ("name: Tarn\nroomPrice: 1,249", {}, [("money", 1249)]),
        ("name: Tarn\nsize: weight 1.1 kg; 67 to 135 cm", {}, [("mass", 1.1), ("length", 0.67, 1.35)]),
        ("name: Tarn\nload: 500 g - 2 kg", {}, [("mass", 0.5, 2)]),
        ("name: Tarn\nweight_kg: 10-20", {}, [("mass", 10, 20)]),
        ("name: Tarn\nmemory: 8 or 16 GB", {}, [("data", 8), ("data", 16)]),
        ("name: Tarn\ntags:\nsize: 1.1 kg - 40 cm", {}, [("mass", 1.1), ("length", 0.4)]),
        ("name: Tarn\nprice: 1\u202f299 €", {}, [("money", 1299)]),
        ("name: Tarn\nprice: $0.005", {}, [("money", 0.005)]),
        ("name: Tarn\nprice: USD 1.2 million", {}, [("money", 1.2e6)]),
        ("name: Tarn\nrent: 850 €/month", {}, [("money", 850)]),
        ("name: Tarn\nrent_per_m2: 12", {}, [("money", 12)]),
        ("name: Tarn\nmin_price: 20\ntemp_min: -5\nwalk_min: 5", {}, [("money", 20), ("time", 300)]),
        ("name: Tarn\ncost_center: 4711\nh: 14", {}, []),
        ("Anna: I paid 500 euros for the tent.\nBen: So much?", {}, []),
        ("", {"price": 3.125}, [("money", 3.125)]),
        ("A tent for two.", {"price": 249, "path": "tents.jsonl"}, [("money", 249)]),
        ("name: Tarn\nstars: 5", {}, []),
        ("Orders above 500 euros need a signature.", {}, []),
        ("name: Orders\nrule: " + "Ask the head of your department. " * 3 + "The limit is 500 euros.", {}, []),
    ],
)
def test_the_fields_of_a_record_have_quantities(text, metadata, amounts):
    found = [(one.dimension, round(one.low, 6), round(one.high, 6)) for one in record_quantities(text, metadata)]
    assert found == [(dimension, ends[0], ends[-1]) for dimension, *ends in amounts]


@pytest.mark.parametrize("unit", ["1.1 ", "1 and ", "20 - ", "under 5 kg ", "-", "1,", "$1 ", "1 000 "])
def test_a_long_record_is_read_in_linear_time(unit):
    assert growth(lambda text: record_quantities(text, {}), lambda size: f"{unit}: {unit}\n" * size, 50) < MOST_GROWTH
