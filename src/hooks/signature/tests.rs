use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use axum::http::HeaderName;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;
use crate::secrets::Use;

const NOW: u64 = 1_764_422_400;
const TEXT: &str = "0123456789abcdef";
const OTHER: &str = "fedcba9876543210";
/// The example of the specification of Standard Webhooks.
const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn secret(text: &str) -> Secret {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
    Secret::read(Use::Hooks, "s", file.path()).unwrap()
}

fn hook(scheme: &str) -> Hook {
    serde_json::from_str(&format!(r#"{{"scheme":"{scheme}","secrets":["s"]}}"#)).unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn made(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    mac(key, parts).unwrap().finalize().into_bytes().to_vec()
}

fn hex_of(bytes: &[u8]) -> String {
    crate::access::hex(bytes)
}

fn check(scheme: &str, text: &str, pairs: &[(&'static str, &str)], body: &[u8]) -> Result<(), Unsigned> {
    verify(&hook(scheme), &[&secret(text)], &headers(pairs), body, NOW)
}

#[test]
fn the_example_of_github_is_verified() {
    // From GitHub's documentation, "Validating webhook deliveries".
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let given = [("x-hub-signature-256", signature)];
    assert_eq!(check("github", "It's a Secret to Everybody", &given, b"Hello, World!"), Ok(()));
    assert_eq!(check("github", "It's-a-Secret-to-Everybody", &given, b"Hello, World!"), Err(Unsigned::Wrong));
}

#[test]
fn a_public_key_verifies_what_its_private_key_has_signed_and_is_no_secret() {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public = format!("whpk_{}", BASE64.encode(pair.public_key()));
    let time = NOW.to_string();
    let signed =
        |body: &str| format!("v1a,{}", BASE64.encode(pair.sign(format!("a.{time}.{body}").as_bytes())));
    let forged = BASE64.encode(made(public.as_bytes(), &[b"a.", time.as_bytes(), b".", b"{}"]));
    let given = |signature: &str| {
        let given = [("webhook-id", "a"), ("webhook-timestamp", &time), ("webhook-signature", signature)];
        check("standard", &public, &given, b"{}")
    };
    assert_eq!(given(&signed("{}")), Ok(()));
    assert_eq!(given(&format!("v1,AAAA v1a,AAAA {}", signed("{}"))), Ok(()));
    for wrong in
        [signed("{} "), signed("{}").replace("v1a,", "v1,"), format!("v1,{forged}"), "v1a,".to_owned()]
    {
        assert_eq!(given(&wrong), Err(Unsigned::Wrong), "{wrong}");
    }
    let hub = format!("sha256={}", hex_of(&made(public.as_bytes(), &[b"{}"])));
    assert_eq!(check("github", &public, &[("x-hub-signature-256", &hub)], b"{}"), Err(Unsigned::Wrong));
    assert_eq!(check("gitlab", &public, &[("x-gitlab-token", &public)], b"{}"), Err(Unsigned::Wrong));
}

#[test]
fn each_scheme_takes_its_own_signature_and_no_other_body() {
    let (body, time) = (br#"{"a":1}"#.as_slice(), NOW.to_string());
    let literal = hex_of(&made(TEXT.as_bytes(), &[body]));
    let encoded = BASE64.encode(made(TEXT.as_bytes(), &[body]));
    let stripe = hex_of(&made(TEXT.as_bytes(), &[time.as_bytes(), b".", body]));
    let slack = hex_of(&made(TEXT.as_bytes(), &[b"v0:", time.as_bytes(), b":", body]));
    let cases: [(&str, Vec<(&'static str, String)>); 5] = [
        ("github", vec![("x-hub-signature-256", format!("sha256={literal}"))]),
        ("shopify", vec![("x-shopify-hmac-sha256", encoded)]),
        ("stripe", vec![("stripe-signature", format!("t={time},v1={literal},v1={stripe},v0=00"))]),
        (
            "slack",
            vec![("x-slack-request-timestamp", time.clone()), ("x-slack-signature", format!("v0={slack}"))],
        ),
        ("gitlab", vec![("x-gitlab-token", TEXT.to_owned())]),
    ];
    for (scheme, pairs) in &cases {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(check(scheme, TEXT, &pairs, body), Ok(()), "{scheme}");
        assert_eq!(check(scheme, &format!("{OTHER}\n{TEXT}"), &pairs, body), Ok(()), "{scheme}");
        assert_eq!(check(scheme, OTHER, &pairs, body), Err(Unsigned::Wrong), "{scheme}");
        if *scheme != "gitlab" {
            assert_eq!(check(scheme, TEXT, &pairs, br#"{"a":2}"#), Err(Unsigned::Wrong), "{scheme}");
        }
        assert!(check(scheme, TEXT, &[], body).is_err(), "{scheme}");
    }
}

#[test]
fn what_pushing_signs_is_verified() {
    let secret = secret(&format!("{STANDARD_SECRET}\nwhsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"));
    let (signed, time) = (secret.sign("a-1", NOW, b"{}"), NOW.to_string());
    for signature in [signed.as_str(), signed.split(' ').next().unwrap(), "v1a,AAAA v1,!! v1,"] {
        let given =
            headers(&[("webhook-id", "a-1"), ("webhook-timestamp", &time), ("webhook-signature", signature)]);
        let verified = verify(&hook("standard"), &[&secret], &given, b"{}", NOW);
        assert_eq!(verified.is_ok(), signature.starts_with("v1,"), "{signature}");
        assert!(verify(&hook("standard"), &[&secret], &given, b"{}", NOW + 301).is_err());
        assert!(verify(&hook("standard"), &[&secret], &given, b"{}", NOW - 301).is_err());
    }
}

#[test]
fn the_names_of_svix_are_read_as_well() {
    let (secret, time) = (secret(STANDARD_SECRET), NOW.to_string());
    let signed = secret.sign("a-1", NOW, b"{}");
    let of_svix = [("svix-id", "a-1"), ("svix-timestamp", &time), ("svix-signature", &signed)];
    assert_eq!(verify(&hook("standard"), &[&secret], &headers(&of_svix), b"{}", NOW), Ok(()));
    let mixed = [("webhook-id", "a-1"), ("svix-timestamp", &time), ("svix-signature", &signed)];
    assert!(verify(&hook("standard"), &[&secret], &headers(&mixed), b"{}", NOW).is_err());
}

#[test]
fn a_part_or_more_of_a_signature_is_none() {
    let right = hex_of(&made(TEXT.as_bytes(), &[b"{}"]));
    for wrong in [
        String::new(),
        right[..62].to_owned(),
        format!("{right}00"),
        format!("{right}0"),
        right.replace(|_: char| true, "0"),
        format!("{right}\u{7f}"),
    ] {
        let value = format!("sha256={wrong}");
        let Ok(value) = value.parse() else { continue };
        let mut given = HeaderMap::new();
        given.insert("x-hub-signature-256", value);
        assert!(verify(&hook("github"), &[&secret(TEXT)], &given, b"{}", NOW).is_err(), "{wrong}");
    }
    let upper = format!("sha256={}", right.to_uppercase());
    assert_eq!(check("github", TEXT, &[("x-hub-signature-256", &upper)], b"{}"), Ok(()));
    assert!(check("github", TEXT, &[("x-hub-signature-256", &right)], b"{}").is_err(), "without a prefix");
    assert!(verify(&hook("github"), &[], &headers(&[("x-hub-signature-256", &upper)]), b"{}", NOW).is_err());
}

#[test]
fn a_time_is_whole_seconds_within_five_minutes() {
    for good in [NOW, NOW - 300, NOW + 300] {
        assert_eq!(check_time(&good.to_string(), NOW), Ok(()));
    }
    for bad in ["", "NaN", "-1", "+1764422400", "1e30", "1764422400.0", " 1764422400", "99999999999999999999"]
    {
        assert_eq!(check_time(bad, NOW), Err(Unsigned::Time), "{bad}");
    }
    for bad in [NOW - 301, NOW + 301, 0] {
        assert_eq!(check_time(&bad.to_string(), NOW), Err(Unsigned::Time));
    }
}

#[test]
fn the_scheme_hmac_reads_the_header_that_the_setting_names() {
    let read = |signature: &str| -> Hook {
        let text = format!(r#"{{"scheme":"hmac","secrets":["s"],"signature":{signature}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let (time, key) = (NOW.to_string(), TEXT.as_bytes());
    let plain = read(r#"{"header":"x-signature","prefix":"v=","encoding":"base64"}"#);
    let value = format!("v=AAAA,v={}", BASE64.encode(made(key, &[b"{}"])));
    assert_eq!(verify(&plain, &[&secret(TEXT)], &headers(&[("x-signature", &value)]), b"{}", NOW), Ok(()));
    assert!(verify(&plain, &[&secret(TEXT)], &headers(&[("x-other", &value)]), b"{}", NOW).is_err());
    let comma = read(r#"{"header":"x-signature","prefix":"v1,","encoding":"base64"}"#);
    let value = format!("v1,AAAA v1,{}", BASE64.encode(made(key, &[b"{}"])));
    assert_eq!(verify(&comma, &[&secret(TEXT)], &headers(&[("x-signature", &value)]), b"{}", NOW), Ok(()));
    let timed = read(r#"{"header":"x-signature","timestamp_header":"x-time"}"#);
    let value = hex_of(&made(key, &[time.as_bytes(), b".", b"{}"]));
    let given = headers(&[("x-signature", &value), ("x-time", &time)]);
    assert_eq!(verify(&timed, &[&secret(TEXT)], &given, b"{}", NOW), Ok(()));
    assert!(verify(&timed, &[&secret(TEXT)], &given, b"{}", NOW + 301).is_err());
    assert!(verify(&timed, &[&secret(TEXT)], &headers(&[("x-signature", &value)]), b"{}", NOW).is_err());
}
