"""Numbers with a unit in the fields of a record."""

from __future__ import annotations

import json

import pytest

from context_agent.text.quantities import count_dimension, record_quantities, written_quantities
from context_agent.text.words import key
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
        ("name: Tarn\nmin_price: 20\nwalk_min: 5", {}, [("money", 20), ("time", 300)]),
        ("name: Tarn\nweight: 2 lb\nlength: 6 ft", {}, [("mass", 0.907185), ("length", 1.8288)]),
        ("name: Tarn\nyearly_kwh: 240\nsize_in: 10", {}, [("energy", 240), ("length", 0.254)]),
        ("name: Tarn\nprezzo: 85\nsuperficie: 72 mq", {}, [("money", 85), ("area", 72)]),
        ("название: Тарн\nцена: 1,5 млн руб\nвес: 2 кг", {}, [("money", 1.5e6), ("mass", 2)]),
        ("# Tarn\n\n- **Price:** 49 €\n- **Weight**: 2 kg\n\nA tent.", {}, [("money", 49), ("mass", 2)]),
        (
            '{"price": {"amount": 249.5}, "sizes": [{"kg": 1}, {"kg": 2}]}',
            {},
            [("money", 249.5), ("mass", 1), ("mass", 2)],
        ),
        ('\n {"kg": 3}', {}, [("mass", 3)]),
        ("A tent.", {"specs": '{"weight_kg": 1.5, "isNew": true}'}, [("mass", 1.5)]),
        ("A tent.", {"specs": '{"weight_kg": 1.5'}, []),
        ("name: Tarn\nlat: 48.2", {}, [("number of lat", 48.2)]),
        ("name: Tarn\ntemp_min: -5", {}, [("number of min", -5), ("number of temp", -5)]),
        ("name: Tarn\nh: 14", {}, [("number of h", 14)]),
        ("Anna: I paid 500 euros for the tent.\nBen: So much?", {}, []),
        ("", {"price": 3.125}, [("money", 3.125)]),
        ("A tent for two.", {"price": 249, "path": "tents.jsonl"}, [("money", 249)]),
        ("name: Tarn\nstars: 5", {}, [("number of star", 5)]),
        ("name: Tarn\nsleeps: 4 persons", {}, [("number of person", 4)]),
        ("The tent.\nPrice: 50 euros\nIt is green.", {}, []),
        ("Orders above 500 euros need a signature.", {}, []),
        ("price: 500 euros", {}, []),
        ("name: Tarn\nnote: It costs 500 euros now.", {}, []),
        ("name: Tarn\nnote: Costs 500 euros now.", {}, [("money", 500)]),
        ("name: Tarn\nnote: " + "a" * 70 + " 500 euros", {}, [("money", 500)]),
        ("name: Tarn\nnote: " + "a" * 71 + " 500 euros", {}, []),
        ("", {"walk_min": 2.5}, [("time", 150)]),
        ("", {"kg": 5}, [("mass", 5)]),
        ("", {"": 5}, []),
        ("", {"cost_center": 500}, [("number of center", 500), ("number of cost", 500)]),
        ("", {"screen_size_in": 10}, [("length", 0.254)]),
        ("", {"walk_in": "1 kg", "walk_in_kg": 2}, [("mass", 1), ("mass", 2)]),
        ("name: Orders\nrule: " + "Ask the head of your department. " * 3 + "The limit is 500 euros.", {}, []),
    ],
)
def test_the_fields_of_a_record_have_quantities(text, metadata, amounts):
    found = [(one.dimension, round(one.low, 6), round(one.high, 6)) for one in record_quantities(text, metadata)]
    assert found == [(dimension, ends[0], ends[-1]) for dimension, *ends in amounts]


def test_each_unit_counts_in_the_base_unit_of_its_dimension():
    amounts = {
        "2 kb": ("data", 2e-6),
        "2 MB": ("data", 2e-3),
        "2 TB": ("data", 2e3),
        "2 mg": ("mass", 2e-6),
        "50g": ("mass", 0.05),
        "5 g": ("mass", 0.005),
        "2 mm": ("length", 2e-3),
        "2 inches": ("length", 0.0508),
        "2 m": ("length", 2),
        "2 km": ("length", 2e3),
        "2 m²": ("area", 2),
        "2 ml": ("volume", 2e-3),
        "2 liters": ("volume", 2),
        "2 watts": ("power", 2),
        "2 kW": ("power", 2e3),
        "2 V": ("voltage", 2),
        "2 mAh": ("charge", 2),
        "2 °C": ("temperature", 2),
        "2 lumens": ("light", 2),
        "2 Hz": ("frequency", 2),
        "2 %": ("share", 2),
        "2 seconds": ("time", 2),
        "2 hours": ("time", 7200),
        "2 days": ("time", 172_800),
        "2 oz": ("mass", 0.056699046),
        "2 miles": ("length", 3218.688),
        "2 sqft": ("area", 0.18580608),
        "2 gallons": ("volume", 7.570823568),
        "2 Wh": ("energy", 2e-3),
        "2 hp": ("power", 1491.4),
        "2 dB": ("loudness", 2),
        "2k euros": ("money", 2e3),
        "2 m €": ("money", 2e6),
        "2 bn euros": ("money", 2e9),
        "1,299 €": ("money", 1299),
        "1.299 €": ("money", 1299),
        "1,299 kg": ("mass", 1299),
        "1.299 kg": ("mass", 1.299),
        "1.299.000 kg": ("mass", 1_299_000),
    }
    for written, (dimension, amount) in amounts.items():
        (found,) = record_quantities("", {"load": written})
        assert found[:3] == (dimension, *[pytest.approx(amount, rel=1e-12)] * 2), written


@pytest.mark.parametrize(
    ("text", "start", "low", "high", "is_list"),
    [
        ("take 5 to 7 kg", 5, 5, 7, False),
        ("take 7 to 5 kg", 10, 5, 5, False),
        ("take 16 or 8 kg", 5, 8, 16, True),
    ],
)
def test_a_number_before_one_with_a_unit_may_share_the_unit(text, start, low, high, is_list):
    (found,) = written_quantities(text)
    assert (found.start, found.low, found.high, found.is_list) == (start, low, high, is_list)


def test_a_quantity_has_the_words_beside_it():
    (found,) = record_quantities("", {"load": "alpha beta gamma 5 kg delta epsilon zeta eta"})
    assert found.beside == {*map(key, ["load", "beta", "gamma", "delta", "epsilon", "zeta"])}
    assert record_quantities("", {"load": "5G"}) == []


@pytest.mark.parametrize("unit", ["1.1 ", "1 and ", "20 - ", "under 5 kg ", "-", "1,", "$1 ", "1 000 "])
def test_a_long_record_is_read_in_linear_time(unit):
    assert growth(lambda text: record_quantities(text, {}), lambda size: f"{unit}: {unit}\n" * size, 50) < MOST_GROWTH


def test_the_number_of_an_order_is_no_number_of_orders():
    for name in ("my_order_id", "order_no", "order_number"):
        (found,) = record_quantities("", {name: 1001})
        assert found.beside == {key(name.rpartition("_")[2])}
        assert found.dimension != count_dimension("order")


@pytest.mark.parametrize(("length", "amounts"), [(200, [5]), (201, [])])
def test_a_field_with_a_very_long_name_is_not_read(length, amounts):
    inner = " kg".rjust(length - len("x "), "a")
    assert [one.low for one in record_quantities("", {"x": json.dumps({inner: 5})})] == amounts


@pytest.mark.parametrize(("depth", "amounts"), [(8, [5]), (9, [])])
def test_what_is_too_deep_in_an_object_is_not_read(depth, amounts):
    fields = record_quantities('{"a": ' * (depth - 1) + '{"kg": 5}' + "}" * (depth - 1), {})
    assert [one.low for one in fields] == amounts
