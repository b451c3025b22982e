from pathlib import Path

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.settings import Settings, Topics, load
from stream_tpp.warning.rule import Rule


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_without_a_file_and_an_environment_the_defaults_hold() -> None:
    assert load(environment={}) == Settings()


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, '[topics]\nevents = "flights"\n[histories]\ngrace = 60\nfolder = "data"\n')
    settings = load(path, environment={})
    assert settings.topics.events == "flights"
    assert settings.topics.forecasts == Settings().topics.forecasts
    assert settings.histories.grace == 60.0
    assert isinstance(settings.histories.grace, float)
    assert settings.histories.folder == Path("data")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[topics]\npartitions = 2\nevents = "flights"\n')
    settings = load(path, environment={"STREAM_TPP_TOPICS_PARTITIONS": "8", "HOME": "/"})
    assert settings.topics.partitions == 8
    assert settings.topics.events == "flights"


def test_the_bootstrap_servers_come_from_the_name_that_kafka_tools_use() -> None:
    assert load(environment={"KAFKA_BOOTSTRAP_SERVERS": "k:1,l:2"}).kafka.servers == ["k:1", "l:2"]
    assert load(environment={"KAFKA_BOOTSTRAP_SERVERS": ""}) == Settings()
    both = {"KAFKA_BOOTSTRAP_SERVERS": "k:1", "STREAM_TPP_KAFKA_BOOTSTRAP_SERVERS": "own:2"}
    assert load(environment=both).kafka.bootstrap_servers == "own:2"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("0", False), ("No", False)])
def test_words_of_the_environment_are_read_as_yes_and_no(text: str, value: bool) -> None:
    assert load(environment={"STREAM_TPP_KAFKA_SSL_CHECK_HOSTNAME": text}).kafka.ssl_check_hostname is value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[topics]\nevnets = 'x'\n", "The setting topics.evnets is unknown; did you mean events?"),
        ("[topic]\nevents = 'x'\n", "The setting topic is unknown; did you mean topics?"),
        ("topics = 3\n", "The setting topics must be a section ([topics]), not a whole number."),
        ("[topics]\npartitions = 'four'\n", "The setting topics.partitions must be a whole number, not text."),
        ("[topics]\npartitions = true\n", "The setting topics.partitions must be a whole number, not true or false."),
        ("[topics]\npartitions = 2.0\n", "The setting topics.partitions must be a whole number, not a number."),
        ("[topics]\npartitions = 0\n", "The setting partitions is 0; it must be at least 1."),
        ("[sampler]\nmax_wait = nan\n", "The setting max_wait is nan; it must be finite."),
        ("[histories]\nstore = 'redis'\n", "The setting store is 'redis'; use one of memory, rocksdb."),
        ("[fields]\ntime_unit = 'h'\n", "The time unit 'h' is unknown"),
        ("[kafka]\nbootstrap_servers = 'localhost'\n", "'localhost' is not host:port"),
        ("[kafka]\nsecurity_protocol = 'TLS'\n", "The security protocol 'TLS' is unknown"),
        ("[kafka]\nsasl_mechanism = 'OAUTHBEARER'\n", "plug into it"),
        ("[kafka]\nsecurity_protocol = 'SASL_SSL'\n", "needs kafka.sasl_username and kafka.sasl_password"),
        ("[topics\n", "is not TOML"),
        ("[rules]\nalarm = ['late']\n", "The setting rules must be a list, not a section."),
        ("[[rules]]\nalarm = 'late'\nhorizon = 60\nthreshold = 0.5\n", "The setting rules[0].alarm must be a list"),
        ("[[rules]]\nalarm = ['late']\nthreshold = 0.5\n", "The settings under [rules[0]] lack horizon."),
        ("[[rules]]\nalarm = [1]\n", "The setting rules[0].alarm[0] must be text, not a whole number."),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_that_names_the_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(StreamTppError) as caught:
        load(written(tmp_path, text), environment={})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("STREAM_TPP_TOPICS_PARTITONS", "8", "is no setting; did you mean STREAM_TPP_TOPICS_PARTITIONS?"),
        ("STREAM_TPP_TOPICS_PARTITIONS", "eight", "STREAM_TPP_TOPICS_PARTITIONS must be a whole number."),
        ("STREAM_TPP_SAMPLER_MAX_WAIT", "1s", "STREAM_TPP_SAMPLER_MAX_WAIT must be a number."),
        ("STREAM_TPP_KAFKA_SSL_CHECK_HOSTNAME", "perhaps", "must be true or false."),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, sentence: str) -> None:
    with pytest.raises(StreamTppError) as caught:
        load(environment={name: value})
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match=r"nowhere\.toml can't be read: No such file"):
        load(tmp_path / "nowhere.toml", environment={})


def test_secrets_show_neither_in_the_settings_nor_in_an_error(tmp_path: Path) -> None:
    lines = ["sasl_username = 'ward'", "sasl_password = 'swordfish'", "ssl_password = 'herring'"]
    path = written(tmp_path, "\n".join(["[kafka]", "security_protocol = 'SASL_PLAINTEXT'", *lines]))
    settings = load(path, environment={})
    assert settings.kafka.sasl_password == "swordfish"
    assert settings.kafka.client_options()["sasl_plain_password"] == "swordfish"
    assert "swordfish" not in repr(settings)
    assert "herring" not in repr(settings)
    with pytest.raises(StreamTppError) as caught:
        load(written(tmp_path, "[kafka]\nsasl_password = ['swordfish']\n"), environment={})
    assert "swordfish" not in str(caught.value)


def test_settings_made_in_python_keep_their_bounds() -> None:
    with pytest.raises(StreamTppError, match="at least 1"):
        Topics(partitions=0)


def test_rules_are_read_with_their_own_checks(tmp_path: Path) -> None:
    rules = "[[rules]]\nalarm = ['late', 'cancelled']\nhorizon = 3600\nthreshold = 0.25\nclear = 0.1\n"
    settings = load(written(tmp_path, rules), environment={})
    assert settings.rules == (Rule(alarm={"late", "cancelled"}, horizon=3600.0, threshold=0.25, clear=0.1),)
    with pytest.raises(StreamTppError, match=r"\[rules\[0\]\].* needs a threshold"):
        load(written(tmp_path, rules.replace("0.25", "25.0")), environment={})
