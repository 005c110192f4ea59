"""Who wakes the host and who does not, and what each is told (`lswap.wol.door`)."""

from __future__ import annotations

import json
import re

from tests.wol.wol_case import WolCase

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class StatusTests(WolCase):
    """`/status`."""

    def test_text(self) -> None:
        """Two lines, never woken for, also when the host is awake."""
        answer = self.ask("GET", "/status")
        self.assertEqual((answer.status, answer.body), (200, b"status: not ready\nfailures: 1\n"))
        self.assertEqual((answer.header("Content-Type"), answer.header("Cache-Control")), ("text/plain", "no-store"))
        self.awake()
        self.assertEqual(self.ask("GET", "/status?x").body, b"status: ready\nfailures: 0\n")
        self.assertEqual((self.waker.wakes, self.host.requests), (0, []))

    def test_json(self) -> None:
        """For programs, with the number of those who wait."""
        waiting = self.client()
        waiting.send("GET", "/v1/models")
        answer = self.ask("GET", "/status", "application/json")
        self.assertEqual(json.loads(answer.body), {"status": "not ready", "failures": 1, "waiting": 1})

    def test_only_get(self) -> None:
        """As the reference has it, another method is passed on."""
        self.awake()
        self.host.says = b"theirs"
        self.assertEqual(self.ask("POST", "/status").body, b"theirs")


class PollTests(WolCase):
    """What is asked again and again is no reason to wake anybody."""

    def test_polls(self) -> None:
        """Monitors and browsers are answered at once."""
        for target, status in (
            ("/health", 503),
            ("/wol-health", 503),
            ("/metrics", 503),
            ("/favicon.ico", 204),
            ("/api/events", 204),
            ("/api/events?x=1", 204),
        ):
            self.assertEqual(self.ask("GET", target).status, status, target)
        self.pass_time(10)
        self.assertEqual((self.waker.wakes, self.service.host.waiting), (0, 0))

    def test_no_body_where_there_is_none(self) -> None:
        """A 204 has none."""
        answer = self.ask("GET", "/api/events")
        self.assertEqual((answer.body, answer.header("Content-Length")), (b"", None))

    def test_an_awake_host_answers_them_itself(self) -> None:
        """They go on to it then."""
        self.awake()
        self.host.says = b"theirs"
        for target in ("/wol-health", "/metrics", "/favicon.ico", "/api/events?x", "/", "/ui/"):
            self.assertEqual(self.ask("GET", target).status, 200, target)
        self.assertEqual(self.waker.wakes, 0)


class PageTests(WolCase):
    """The waiting page."""

    def test_browsers(self) -> None:
        """It comes at once, is never kept, and wakes the host."""
        for target in ("/", "/ui/", "/ui/models?x", "/?x"):
            answer = self.ask("GET", target, BROWSER)
            self.assertEqual((answer.status, answer.header("Cache-Control")), (200, "no-store"), target)
            self.assertEqual(answer.header("Content-Type"), "text/html; charset=utf-8")
            self.assertIn(b"<title>Loading...</title>", answer.body)
        self.assertEqual((self.waker.wakes, self.service.host.waiting), (4, 0))

    def test_those_who_say_nothing_about_it(self) -> None:
        """No `Accept`, or one of everything; HEAD as GET."""
        self.assertEqual(self.ask("GET", "/").status, 200)
        self.assertEqual(self.ask("GET", "/", "*/*").status, 200)
        head = self.ask("HEAD", "/", BROWSER)
        self.assertEqual((head.status, head.body), (200, b""))

    def test_programs(self) -> None:
        """A program that wants JSON, or that sends something, waits like the rest."""
        for method, accept in (("GET", "application/json"), ("GET", "application/json, */*"), ("POST", BROWSER)):
            client = self.client()
            client.send(method, "/", headers=[("Accept", accept)])
            self.assertEqual(client.take(), b"", (method, accept))
        self.assertEqual(self.service.host.waiting, 3)
        waiting = self.client()
        waiting.send("GET", "/ui", headers=[("Accept", BROWSER)])
        self.assertEqual(self.service.host.waiting, 4)

    def test_page_stands_alone(self) -> None:
        """It loads nothing from elsewhere, asks only for the status, and has the words that people know."""
        page = self.ask("GET", "/").body.decode()
        self.assertIn("Waking up upstream server...", page)
        self.assertEqual(re.findall(r'fetch\("([^"]*)"', page), ["/status"])
        self.assertIn("status: ready", page)
        self.assertEqual(re.findall(r"(?:src|href)=\"([^\"]+)\"", page), [])
        self.assertNotIn("http", page.replace("utf-8", ""))

    def test_its_questions_do_not_wake(self) -> None:
        """A page that stays open asks for the status each second: after a while the host may sleep again."""
        self.ask("GET", "/", BROWSER)
        for _ in range(30):
            self.pass_time(1)
            self.ask("GET", "/status")
        wakes = self.waker.wakes
        self.pass_time(30)
        self.assertEqual(self.waker.wakes, wakes)


class OddTests(WolCase):
    """What clients send by mistake, or by malice."""

    def test_a_path_that_is_no_text(self) -> None:
        """It is passed on as it is; the log is not harmed by it."""
        client = self.client()
        client.raw(b"GET /\xff%0a?k=secret HTTP/1.1\r\nHost: x\r\n\r\n")
        self.awake()
        self.pass_time(0.5)
        self.assertEqual(self.host.request.target, "/base/\xff%0a?k=secret")
