"""The default scorer meets the contract of scorers and uses the settings."""

from __future__ import annotations

import pytest

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.conformance import SalienceScorerConformance
from kbcore.plug.ports import SalienceScorer, SalienceWeights
from kbplugins import salience_default


class TestDefault(SalienceScorerConformance):
    def make_scorer(self, config: Config) -> SalienceScorer:
        return salience_default.kb_salience_scorers(config=config)["default"]


def test_weights_and_half_life_are_settings() -> None:
    config = Config.from_env({"SALIENCE_WEIGHTS": "0.2, 0.3,0.4", "SALIENCE_HALF_LIFE_MS": "1000"})
    scorer = salience_default.kb_salience_scorers(config=config)["default"]
    assert scorer.weights == SalienceWeights(0.2, 0.3, 0.4, 1000)


@pytest.mark.parametrize(
    "text", ["1", "a,b,c", "0.5,0.5,0.5", "-1,1,1", "0,0,0", "nan,0,0", "1,0,0,0"]
)
def test_invalid_weights_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SALIENCE_WEIGHTS"):
        Config.from_env({"SALIENCE_WEIGHTS": text})
