"""Whatever the description of the API allows to be sent, the server answers it, and stays whole."""

from __future__ import annotations

from http.cookiejar import DefaultCookiePolicy

import pytest
import schemathesis
from fleet_parts import Place, open_run, publish, tiny_network
from hypothesis import HealthCheck, Phase, given, settings

#: Requests for each path and method, for each who sends them.
EXAMPLES = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    place = Place(folder)
    with place.client:
        # What a request leaves behind should not decide about the next one.
        place.client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        publish(place.client, place.tom, "first", tiny_network(folder / "tiny.onnx"))
        open_run(place.client, place.tom, 1, "first")
        yield place


def asking(place, operation, who, seen):
    """A test that sends what the description of an operation allows, and some that it does not."""

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case):
        sent = case.as_transport_kwargs(base_url="http://testserver")
        sent = {name: value for name, value in sent.items() if value is not None}
        sent.pop("cookies", None)
        answer = place.client.request(**{**sent, "headers": {**dict(sent["headers"]), **who}})
        seen.add(answer.status_code)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)

    return ask


def test_no_request_is_a_fault_of_the_server(place):
    schema = schemathesis.openapi.from_dict(place.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 20
    seen = set()
    for operation in operations:
        for who in (place.ann, place.tom):
            asking(place, operation, who, seen)()
    assert {200, 404, 422} <= seen
    assert place.status["games"] == 0
