"""Where webhooks may go, however an address is spelled, and how a receiver detects a forged call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count

from sharedmem import ConfigError, InvalidError, Settings
from sharedmem.synthesis.webhook_signatures import signed_headers, verify_webhook
from sharedmem.synthesis.webhooks import parse_url, refusal_reason

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the examples of the scheme

# -- where they may go --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "192.168.1.1", "0.0.0.0", "255.255.255.255"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "224.0.0.1", "239.1.1.1", "240.0.0.1", "198.18.0.1"),
        *("192.0.0.192", "168.63.129.16", "192.88.99.1", "203.0.113.7"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1"),
        *("64:ff9b:1::1", "2002:7f00:1::", "2001:0:53aa:64c::1", "3fff::1", "5f00::1", "no address"),
    ],
)
def test_addresses_of_the_inside_are_refused(address: str) -> None:
    assert refusal_reason(address) is not None


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_of_the_public_network_are_not(address: str) -> None:
    assert refusal_reason(address) is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "hook", "//host/x", "ftp://host/x", "file:///etc/passwd", "gopher://host/", "javascript:alert(1)"),
        *("http://", "http:///x", "http://user@host/", "http://user:pw@host/", "http://@host/", "http://h\\@x/"),
        *("http://host:0/", "http://host:65536/", "http://host:x/", "http://ho st/", "http://host/\r\nX: y"),
        *("http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.0x1/"),
        *("http://1.2.3.4.5/", "http://[::1", "http://[fe80::1%25eth0]/", "http://::1/", "http://[1.2.3.4]/"),
        *("http://-host/", "http://host..com/", "http://b%C3%BCcher.de/", "http://bücher.de/", "http://①.1.1.1/"),
        f"http://host/{'x' * 2000}",
    ],
)
def test_urls_that_are_none_or_spelled_oddly_are_refused(url: str) -> None:
    with pytest.raises(InvalidError, match="callback_url"):
        parse_url(url)


def test_a_refusal_does_not_repeat_a_password() -> None:
    with pytest.raises(InvalidError) as refused:
        parse_url("https://ada:s3cret@example.com/")

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "authority", "at"),
    [
        ("https://Example.COM", "example.com", "https://1.2.3.4/"),
        ("https://example.com.:443/a?b=c#d", "example.com", "https://1.2.3.4/a?b=c"),
        ("http://example.com:443/a//b", "example.com:443", "http://1.2.3.4:443/a//b"),
        ("http://[2606:4700::1]:8080/", "[2606:4700::1]:8080", "http://1.2.3.4:8080/"),
    ],
)
def test_a_url_is_asked_at_its_address_under_its_name(url: str, authority: str, at: str) -> None:
    destination = parse_url(url)

    assert (destination.authority, destination.url_at("1.2.3.4")) == (authority, at)


@settings(max_examples=example_count(20, thorough=50), deadline=None)
@given(st.text(max_size=40) | st.text("htp:/@[]%.0127x\\", max_size=30).map(lambda text: f"http://{text}"))
def test_any_url_is_read_or_refused(url: str) -> None:
    try:
        destination = parse_url(url)
    except InvalidError:
        return
    assert destination.host.isascii()
    assert "@" not in destination.authority


# -- signatures ---------------------------------------------------------------------------------------

# The example of the specification, https://github.com/standard-webhooks/standard-webhooks.
MESSAGE_ID, TIMESTAMP = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNATURE}
ANOTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def test_a_call_is_signed_as_the_example_of_the_scheme() -> None:
    assert signed_headers(SECRET, MESSAGE_ID, BODY, timestamp=TIMESTAMP) == HEADERS


@pytest.mark.parametrize(
    ("secret", "changes", "body", "age_s", "sound"),
    [
        (SECRET, {}, BODY, 0, True),
        (SECRET, {}, BODY, 300, True),
        (SECRET, {}, BODY, 301, False),
        (SECRET, {}, BODY, -301, False),
        (ANOTHER, {}, BODY, 0, False),
        (SECRET, {}, BODY + b" ", 0, False),
        (SECRET, {"webhook-id": "msg_another"}, BODY, 0, False),
        (SECRET, {"webhook-id": ""}, BODY, 0, False),
        (SECRET, {"webhook-timestamp": str(TIMESTAMP + 1)}, BODY, 0, False),
        (SECRET, {"webhook-timestamp": "now"}, BODY, 0, False),
        (SECRET, {"webhook-signature": f"v1,AAAA v1a,BBBB {SIGNATURE}"}, BODY, 0, True),
        (SECRET, {"webhook-signature": SIGNATURE.replace("v1,", "v2,")}, BODY, 0, False),
        (SECRET, {"webhook-signature": "v1,\u00e9"}, BODY, 0, False),
        (SECRET, {"webhook-signature": ""}, BODY, 0, False),
        (SECRET, {"webhook-signature": f"{SIGNATURE} " + "v1,0 " * 1_000}, BODY, 0, False),
    ],
)
def test_a_signature_holds_for_one_message_one_secret_and_a_short_time(
    secret: str, changes: dict[str, str], body: bytes, age_s: int, sound: bool
) -> None:
    assert verify_webhook(secret, HEADERS | changes, body, now_s=TIMESTAMP + age_s) is sound


def test_names_of_headers_may_have_capitals() -> None:
    assert verify_webhook(SECRET, {name.title(): value for name, value in HEADERS.items()}, BODY, now_s=TIMESTAMP)


def test_a_call_without_the_headers_is_refused() -> None:
    assert not verify_webhook(SECRET, {}, BODY)


@pytest.mark.parametrize("secret", ["our secret", "whsec_c2hvcnQ=", "whsec_c2hvcnQ!", SECRET.removeprefix("whsec_")])
def test_a_secret_of_another_form_is_refused_by_receiver_and_sender(secret: str) -> None:
    with pytest.raises(InvalidError, match="the base64 of 24 to 64 bytes"):
        verify_webhook(secret, HEADERS, BODY)
    with pytest.raises(ConfigError, match="the base64 of 24 to 64 random bytes") as refused:
        Settings.model_validate({"webhook_secret": secret})
    assert secret not in str(refused.value)
