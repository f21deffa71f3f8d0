"""The language that most pages about a country's own affairs are written in, by ISO 3166 and ISO 639-1: for services
that know languages and no countries. Where a country has several, the one with the most speakers.
"""

from __future__ import annotations

_TABLE = """
AE ar  AR es  AT de  AU en  BD bn  BE nl  BG bg  BO es  BR pt  BY ru  CA en  CH de  CL es  CN zh  CO es  CR es  CU es
CY el  CZ cs  DE de  DK da  DO es  DZ ar  EC es  EE et  EG ar  ES es  FI fi  FR fr  GB en  GE ka  GH en  GR el  GT es
HK zh  HN es  HR hr  HU hu  ID id  IE en  IL he  IN en  IQ ar  IR fa  IS is  IT it  JM en  JO ar  JP ja  KE en  KR ko
KW ar  KZ ru  LB ar  LT lt  LU fr  LV lv  MA ar  MD ro  MT en  MX es  MY ms  NG en  NI es  NL nl  NO nb  NZ en  OM ar
PA es  PE es  PH en  PK en  PL pl  PR es  PT pt  PY es  QA ar  RO ro  RS sr  RU ru  SA ar  SE sv  SG en  SI sl  SK sk
SV es  TH th  TN ar  TR tr  TW zh  UA uk  US en  UY es  VE es  VN vi  ZA en
"""
_WORDS = _TABLE.split()
SPOKEN = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
