"""The client behind the page: which connection it uses, and when it takes a new one."""

import re
import threading

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Network
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.schedule import schedule_of
from tests.he import ckks_served
from tests.page import samples
from tests.service.running import until

IMAGE = samples.TESTS.pixels[0].astype(np.int64)


@pytest.fixture(scope="module")
def program():
    return samples.program()


def classified(classifier, image=IMAGE, stop=None) -> list:
    found = []
    classifier.classify(image, found.append, stop or threading.Event())
    return found


def hung_up(number):
    raise RuleError("a peer must stay until both are done", got="a closed connection", remedy="connect again")


def test_a_connection_is_kept_from_image_to_image(program):
    service = samples.Service(program)
    classifier = samples.page(service).classifier
    for _ in range(2):
        assert classified(classifier)[-1].name == "answer"
    assert len(service.opened) == 1
    classifier.close()
    assert service.open == 0


def test_of_a_class_alone_no_logits_are_shown(program):
    target = Target(COUNTED, LINKS["local"], truncation="exact", answer="top1")
    made = plan_program(Network(program.nodes, program.weights), target).program
    found = classified(samples.page(samples.Service(made)).classifier)
    (shown,) = found[-1].data["logits"]
    assert shown == {"name": str(interpret(made, IMAGE)["head"].argmax()), "value": 1.0}


def test_a_server_that_hung_up_on_a_silent_client_is_connected_again(program):
    """At the first round of an image, once; the person does not notice."""
    service = samples.Service(program)
    classifier = samples.page(service).classifier
    service.opened[0].before = hung_up
    found = classified(classifier)
    assert [event.name for event in found].count("program") == 2
    assert found[-1].name == "answer"
    assert (len(service.opened), service.open) == (2, 1)


def test_a_new_connection_that_fails_is_not_tried_again(program):
    service = samples.Service(program)
    classifier = samples.page(service).classifier
    classifier.close()
    service.before = hung_up
    assert classified(classifier)[-1].name == "error"
    assert (len(service.opened), service.open) == (2, 0)


def test_an_inference_is_stopped_before_its_next_round(program):
    service, stop = samples.Service(program), threading.Event()
    classifier = samples.page(service).classifier
    service.opened[0].before = lambda number: number == 5 and stop.set()
    found = classified(classifier, stop=stop)
    assert [event.name for event in found].count("reply") <= 1
    assert found[-1].data["got"] == "a stop"
    assert service.open == 0
    assert classified(classifier)[-1].name == "answer"


def shifted(monkeypatch):
    """The server adds t / 3 to every logit, which no right result has."""
    right = answer.reveal_output

    def hand_out(program, share):
        t = np.uint64(program.parameters.plain_modulus)
        return right(program, (share + t // np.uint64(3)) % t)

    monkeypatch.setattr(answer, "reveal_output", hand_out)


@pytest.mark.parametrize("prepare", [0, 1])
def test_a_refused_result_is_not_shown_and_the_server_does_not_notice(program, monkeypatch, prepare):
    service = samples.Service(program)
    classifier = samples.page(service, prepare=prepare).classifier
    rounds, told = [], []
    for wrong in (False, True, False):
        until(lambda: classifier.stock()["prepared"] == prepare)
        before = service.opened[0].requests
        with monkeypatch.context() as patch:
            if wrong:
                shifted(patch)
            told.append(classified(classifier))
            rounds.append([event.data["bytes_up"] for event in told[-1] if event.name == "reply"])
        until(lambda: classifier.stock()["prepared"] == prepare)
        told[-1].append(service.opened[0].requests - before)
    assert [found[-2].name for found in told] == ["answer", "refused", "answer"]
    refused = told[1][-2].data
    assert refused.keys() & {"logits", "classes"} == set()
    assert re.match(r"values of head must have at most \d+ bits, or the result is wrong", refused["rule"])
    assert "do not let the server know" in refused["remedy"]
    assert rounds[0] == rounds[1] == rounds[2]
    assert told[0][-1] == told[1][-1] == told[2][-1], "requests, with those that prepare the next image"
    assert (len(service.opened), service.open) == (1, 1), "nothing is closed, and nothing opened anew"
    classifier.close()


def test_an_image_that_does_not_fit_is_an_error_event(program):
    classifier = samples.page(samples.Service(program)).classifier
    assert classified(classifier, IMAGE + 1)[-1].data["rule"] == "pixels must be integers in [0, 16]"


def test_what_the_server_sees_is_noise_whatever_the_image_is(program):
    """Of two images of one colour: means and neighbours of the drawn coefficients are those of uniform bytes."""
    from base64 import b64decode

    classifier = samples.page(samples.Service(program, "tenseal")).classifier
    for level in (0, 16):
        found = classified(classifier, np.full_like(IMAGE, level))
        picture = next(event.data["picture"] for event in found if event.name == "request")
        pixels = np.frombuffer(b64decode(picture["pixels"]), np.uint8).astype(float)
        side = len(pixels) ** 0.5
        assert side > 16
        assert abs(pixels.mean() - 127.5) < 7 * 73.9 / side, "seven standard deviations of a mean"
        assert len(np.unique(pixels)) > 150
        assert abs(np.corrcoef(pixels[:-1], pixels[1:])[0, 1]) < 7 / side


def test_images_are_prepared_while_nobody_waits(program):
    """The page is told of fewer rounds; the next image finds the stock filled up again."""
    service = samples.Service(program)
    classifier = samples.page(service, prepare=2).classifier
    for _ in range(3):
        until(lambda: classifier.stock()["prepared"] == 2)
        found = classified(classifier)
        (rounds,) = (event.data for event in found if event.name == "rounds")
        assert [r["name"] for r in rounds["rounds"]] == ["image", "square"]
        assert found[-1].data["prepared"]
        assert found[-1].data["rounds"] == 2
        assert [event.data["ciphertexts"] for event in found if event.name == "request"] == [0, 0]
    classifier.close()
    assert classifier.stock() == {"prepared": 0, "stopped": "", "wanted": 2}


def test_an_image_that_waits_for_its_preparation_tells_both_phases(program):
    """The preparation is said and not drawn; its seconds are in no layer's row."""
    target = Target(COUNTED, LINKS["local"], truncation="exact")
    made = plan_program(Network(program.nodes, program.weights), target).program
    found = classified(samples.page(samples.Service(made)).classifier)
    names = [event.name for event in found]
    assert names.index("preparing") < names.index("rounds") < names.index("request")
    (said,) = (event.data for event in found if event.name == "rounds")
    (facts,) = (event.data for event in found if event.name == "program")
    assert len(said["rounds"]) == len(facts["rounds"]) == names.count("reply"), "a row for each"
    told = found[-1].data
    assert not told["prepared"]
    assert told["online"]["rounds"] == names.count("reply") == schedule_of(made).rounds_online < told["rounds"]
    rows = [event.data for event in found if event.name == "reply"]
    assert sum(row["bytes_up"] for row in rows) == told["online"]["bytes_up"] < told["bytes_up"]
    assert sum(row["seconds"] for row in rows) < told["seconds"]


def test_an_image_whose_other_half_the_server_lost_is_told_from_its_beginning(program):
    service = samples.Service(program)
    classifier = samples.page(service, prepare=1).classifier
    until(lambda: classifier.stock()["prepared"] == 1)
    store = service.opened[0]._session._prepared.store
    until(lambda: len(store.serials()) == 1)  # the client has its half first
    store.drop(*store.serials())
    found = classified(classifier)
    assert [event.data["prepared"] for event in found if event.name == "rounds"] == [True, False, True]
    assert [event.data["round"] for event in found if event.name == "request"] == [0, 0, 1]
    assert not found[-1].data["prepared"]
    classifier.close()


def test_a_ckks_program_s_image_is_one_request_and_one_answer():
    """Logits are real and near those in clear; what the server sees is a ciphertext of the image."""
    program, (image, _) = ckks_served.program(), ckks_served.images()
    with ckks_served.insecure():
        classifier = samples.page(samples.Service(program, "kernel"), levels=255, tests=None, classes=()).classifier
        found, refused = classified(classifier, image), classified(classifier, image[:, :4])
    told = {event.name: event.data for event in found}
    assert list(told) == ["connecting", "program", "request", "reply", "answer"]
    assert told["program"]["parameters"].startswith("CKKS of 128 bits, n = 1024")
    assert min(told["request"]["ciphertexts"], told["request"]["picture"]["width"]) > 0
    clear = program.sums(program.real(image[None]))[0]
    shown = {row["name"]: row["value"] for row in told["answer"]["logits"]}
    assert [shown[f"class {label}"] for label in range(4)] == pytest.approx(clear, abs=2e-3 * np.abs(clear).max())
    assert told["answer"]["bytes_up"] == told["request"]["bytes"]
    assert (told["answer"]["rounds"], classifier.stock()) == (1, {"prepared": 0, "stopped": "", "wanted": 0})
    assert refused[-1].data["rule"] == "images must have the program's shape (3, 8, 8)"
    classifier.close()
