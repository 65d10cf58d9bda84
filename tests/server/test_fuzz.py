"""Requests by the thousand that follow the API's description, or just do not: none makes the service fail."""

import re
import subprocess
import sys

import httpx2
import pytest
from mutants import mutants
from serving import Server, picture

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture
def server(model, folder, tmp_path):
    with Server(model, "--images", folder, "--state", tmp_path / "state") as running:
        yield running


def fuzz(server: Server, folder, *options: str) -> int:
    """Run schemathesis against a service; return how many requests were answered."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.address}/openapi.json", "--checks", CHECKS,
               "--suppress-health-check", "all", *options]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert result.returncode == 0, result.stdout[-5000:]
    text = httpx2.get(f"{server.address}/metrics").text
    counts = re.findall(r'dmuh_requests_total\{.*status="(\d+)"\} ([\d.]+)', text)
    assert not [status for status, _ in counts if status.startswith("5")]
    return int(sum(float(number) for _, number in counts))


@pytest.mark.long
def test_the_api_keeps_to_its_description(server, tmp_path):
    assert fuzz(server, tmp_path, "--phases", "examples,coverage", "--seed", "0") > 100


@pytest.mark.slow
def test_the_api_keeps_to_its_description_for_five_minutes(server, tmp_path):
    assert fuzz(server, tmp_path, "--max-time", "300", "--continue-on-failure") > 5000


@pytest.mark.slow
def test_a_thousand_mutated_uploads_are_refused_and_the_service_goes_on(server):
    png = {"content-type": "image/png"}
    with httpx2.Client(base_url=server.address, timeout=60) as client:
        for name, content in mutants(1000, seed=2):
            for path in ("/api/search", "/api/images"):
                answer = client.post(path, content=content, headers=png)
                assert 400 <= answer.status_code < 500, name
                assert len(answer.json()["error"]) > 10, name
        assert client.get("/api/about").json()["images"] == 20
        assert len(client.post("/api/search", content=picture(), headers=png).json()["matches"]) == 10
