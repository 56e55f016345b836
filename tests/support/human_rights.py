"""A text in several languages."""

TEXTS = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos, dotados como están de razón.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. São dotados de razão.",
    "fi": "Kaikki ihmiset syntyvät vapaina. Heille on annettu järki, ja heidän on toimittava toisiaan kohtaan.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "none": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem.",
}
"""The beginning of the Universal Declaration of Human Rights."""
