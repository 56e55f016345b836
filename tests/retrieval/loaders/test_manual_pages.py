"""The text of manual pages is read without the macros that print it."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.manual_pages import manual_text
from tests.support.growth import seconds

MAN = r"""'\" t
.\" A license, which is no part of the text.
.de Vb
.ft CW
..
.TH GATE 1 "2024-01-02" "Weir 1.0"
.SH "SEE THE GATE"
.B gate
.RB [ \-\-open ]
.RI [ file ...]
.PP
The gate of the
.IR weir ,
which \fBholds\fR
the water. \" a remark
.TP
.BR \-\-open , " \-o"
Open
the gate.
.IP \(bu 3
One
.IP
Two
.nf
gate  --open \e
  --wide
.fi
.TS
tab(:);
l l.
Name	Width
T{
north
T}
.TE
.if n .sp
.  am URL
.    ad l
.  .
.ds C+ C++
Built in C\*(C+ by \(lqNora\(rq \s-1PELL\s0 \[u00E9].
.MACRO "of the" page
"""
MAN_TEXT = r"""GATE 1 2024-01-02 Weir 1.0

## SEE THE GATE

gate [--open] [file...]

The gate of the weir, which holds the water.

--open, -o
Open the gate.

•
One

Two

gate  --open \
  --wide

Name	Width
north

Built in CC++ by “Nora” PELL é. of the page
"""
MDOC = r""".Dd January 2, 2024
.Dt GATE 1
.Os
.Sh NAME
.Nm gate
.Nd opens a gate
.Sh SYNOPSIS
.Nm
.Op Fl av
.Op Fl w Ar width
.Oo Ar user Ns @ Oc Ns Ar host
.Sh DESCRIPTION
.Nm
opens the gate of
.Pa /etc/weir ,
see
.Xr weir 8 .
.Bl -tag -width Ds
.It Fl a | Fl -all
All gates
.Pq not the sluice .
Like
.Fl Fl every Ar name ,
of
.Nm .
.It Fl L Xo
.Sm off
.Oo Ar address : Oc
.Ar port : host
.Sm on
.Xc
Forwards to
.Sm off
.Ar user @ host .
.Sm on
Once.
.El
On
.Ux
call
.Fn open gate .
"""
MDOC_TEXT = """## NAME

gate — opens a gate

## SYNOPSIS

gate [-av] [-w width] [user@]host

## DESCRIPTION

gate opens the gate of /etc/weir, see weir(8).

-a | --all
All gates (not the sluice). Like --every name, of gate.

-L [address:]port:host
Forwards to user@host. Once.

On UNIX call open() gate.
"""


@pytest.mark.parametrize(("page", "text"), [(MAN, MAN_TEXT), (MDOC, MDOC_TEXT)])
def test_the_text_of_a_manual_page_is_read_without_its_macros(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "gate.1").write_text(page, encoding="utf-8")
    assert [document.text for document in load(tmp_path)] == [text]


def test_a_text_about_manual_pages_stays_as_it_is(tmp_path: Path) -> None:
    text = "A manual page begins so:\n\n.TH GATE 1\n.SH NAME\n"
    (tmp_path / "how-to").write_text(text, encoding="utf-8")
    assert [document.text for document in load(tmp_path)] == [text]


@pytest.mark.parametrize(
    "piece", [".Op ", "Oo ", '"', "\\f", "\\(", ".de x\n", ".TS\n", ".nf\n", ".It Fl\n", ".B a\n", "' "]
)
def test_hostile_manual_pages_take_linear_time(piece: str) -> None:
    assert seconds(manual_text, f".TH A 1\n.Op {piece * (500_000 // len(piece))}") < 10


def test_letters_with_accents_are_read() -> None:
    text = manual_text(".TH GATE 1\nCaf\\['e] \\(:uber \\(,c \\[vS] \\(oa stra\\(sse \\(/o \\(oe \\(oq \\('1 \\(~~\n")
    assert text.endswith("Caf\u00e9 \u00fcber \u00e7 \u0160 \u00e5 stra\u00dfe \u00f8 \u0153 \u2018 \\('1 \\(~~\n")


def test_a_comment_ends_at_the_macro_that_it_names() -> None:
    text = manual_text(".TH GATE 1\n.SH A\n.ig END\nhidden\n.END\nshown\n.ig\nhidden\n..\n.de X END\nhidden\n.END\n")
    assert "hidden" not in text
    assert text.endswith("shown\n")
