//! The signatures of vendors.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use deltaq_types::{Hook, HookScheme, HookSignature, SignatureEncoding};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::secrets::{Key, Secret, has_signed, keyed};

/// How far the time of a delivery may be from that of the server, in seconds.
const TOLERANCE_SECS: u64 = 5 * 60;
/// Maximum number of signatures of a header that are compared.
const SIGNATURES_MAX: usize = 16;

/// Why a delivery is not signed. Only the operator learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// A header is missing.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// The header that the setting names is missing.
    #[error("the header of the signature or of its time is missing")]
    NoHeader,
    /// A header has another form.
    #[error("the header {0} has another form")]
    Form(&'static str),
    /// The time of the delivery is too far away.
    #[error("its time is more than 5 minutes from that of this server")]
    Time,
    /// No secret has made one of the signatures.
    #[error("no secret of the hook has made the signature")]
    Wrong,
}

/// Verifies the signature of a delivery. `now` is in seconds since 1970.
///
/// # Errors
/// [`Unsigned`].
pub fn verify(
    hook: &Hook,
    secrets: &[&Secret],
    headers: &HeaderMap,
    body: &[u8],
    now: u64,
) -> Result<(), Unsigned> {
    let text = |name: &'static str| {
        let value = headers.get(name).ok_or(Unsigned::Missing(name))?;
        value.to_str().map_err(|_| Unsigned::Form(name))
    };
    // A public key is no secret, so it must never verify an HMAC.
    let literal = || -> Vec<Vec<u8>> {
        let secret = secrets.iter().filter(|secret| !secret.is_public());
        secret.flat_map(|secret| secret.lines()).map(|line| line.as_bytes().to_vec()).collect()
    };
    match hook.scheme {
        HookScheme::Standard => {
            let named = if headers.contains_key("svix-id") && !headers.contains_key("webhook-id") {
                ["svix-id", "svix-timestamp", "svix-signature"]
            } else {
                ["webhook-id", "webhook-timestamp", "webhook-signature"]
            };
            let [id, time, signatures] = named.map(text);
            let (id, time) = (id?, time?);
            check_time(time, now)?;
            let head = [id, ".", time, "."].concat();
            by_standard(secrets, &head, body, signatures?)
        }
        HookScheme::Github => {
            let given = text("x-hub-signature-256")?.strip_prefix("sha256=");
            one_of(&literal(), &[body], given.and_then(hex).into_iter())
        }
        HookScheme::Stripe => {
            let header = text("stripe-signature")?;
            let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
            let time = parts().find(|(name, _)| *name == "t").ok_or(Unsigned::Form("stripe-signature"))?.1;
            check_time(time, now)?;
            let given = parts().filter(|(name, _)| *name == "v1").filter_map(|(_, one)| hex(one));
            one_of(&literal(), &[time.as_bytes(), b".", body], given)
        }
        HookScheme::Shopify => {
            let given = base64(text("x-shopify-hmac-sha256")?);
            one_of(&literal(), &[body], given.into_iter())
        }
        HookScheme::Slack => {
            let time = text("x-slack-request-timestamp")?;
            check_time(time, now)?;
            let given = text("x-slack-signature")?.strip_prefix("v0=");
            one_of(&literal(), &[b"v0:", time.as_bytes(), b":", body], given.and_then(hex).into_iter())
        }
        HookScheme::Gitlab => {
            // The token is the secret itself. Its HMAC is compared, because that takes the same time for every token.
            let token = headers.get("x-gitlab-token").ok_or(Unsigned::Missing("x-gitlab-token"))?;
            let is_secret = |key: &Vec<u8>| {
                let expected = mac(key, &[key]).map(|mac| mac.finalize().into_bytes());
                let given = mac(key, &[token.as_bytes()]);
                expected.zip(given).is_some_and(|(expected, given)| given.verify_slice(&expected).is_ok())
            };
            literal().iter().any(is_secret).then_some(()).ok_or(Unsigned::Wrong)
        }
        HookScheme::Hmac => hook
            .signature
            .as_ref()
            .ok_or(Unsigned::NoHeader)
            .and_then(|signature| by_setting(signature, &literal(), headers, body, now)),
    }
}

/// Verifies the signatures of Standard Webhooks: `v1` with a shared key, `v1a` with a public one.
fn by_standard(secrets: &[&Secret], head: &str, body: &[u8], signatures: &str) -> Result<(), Unsigned> {
    let given = |version: &'static str| {
        signatures.split(' ').filter_map(move |one| one.strip_prefix(version)).filter_map(base64)
    };
    let (mut shared, mut public) = (Vec::new(), Vec::new());
    for key in secrets.iter().flat_map(|secret| secret.keys()) {
        match key {
            Key::Shared(key) => shared.push(key),
            Key::Public(key) => public.push(key),
            Key::Private(_) => {}
        }
    }
    let has_signature = !public.is_empty() && {
        let message = [head.as_bytes(), body].concat();
        let mut given = given("v1a,").take(SIGNATURES_MAX);
        given.any(|one| public.iter().any(|key| has_signed(key, &message, &one)))
    };
    if has_signature { Ok(()) } else { one_of(&shared, &[head.as_bytes(), body], given("v1,")) }
}

/// Verifies the signature of the scheme `hmac`.
fn by_setting(
    signature: &HookSignature,
    keys: &[Vec<u8>],
    headers: &HeaderMap,
    body: &[u8],
    now: u64,
) -> Result<(), Unsigned> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Unsigned::NoHeader);
    let decode = match signature.encoding {
        SignatureEncoding::Hex => hex,
        SignatureEncoding::Base64 => base64,
    };
    // Several signatures are separated by spaces or commas; a prefix may have a comma itself.
    let header = text(&signature.header)?;
    let given = header.split(' ').chain(header.split([',', ' ']));
    let given = given.filter_map(|one| one.strip_prefix(&*signature.prefix)).filter_map(decode);
    match &signature.timestamp_header {
        None => one_of(keys, &[body], given),
        Some(name) => {
            let time = text(name)?;
            check_time(time, now)?;
            one_of(keys, &[time.as_bytes(), b".", body], given)
        }
    }
}

/// Whether one of the given signatures is that of one of the keys. A vendor sends several while it replaces a secret.
fn one_of(keys: &[Vec<u8>], parts: &[&[u8]], given: impl Iterator<Item = Vec<u8>>) -> Result<(), Unsigned> {
    let given: Vec<Vec<u8>> = given.take(SIGNATURES_MAX).collect();
    let is_made_by = |key: &Vec<u8>| {
        let Some(made) = mac(key, parts) else { return false };
        given.iter().any(|one| made.clone().verify_slice(one).is_ok())
    };
    keys.iter().any(is_made_by).then_some(()).ok_or(Unsigned::Wrong)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = keyed(key)?;
    for part in parts {
        mac.update(part);
    }
    Some(mac)
}

/// Checks a time in whole seconds since 1970.
fn check_time(text: &str, now: u64) -> Result<(), Unsigned> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let time: Option<u64> = text.parse().ok().filter(|_| is_number);
    time.filter(|time| time.abs_diff(now) <= TOLERANCE_SECS).map(drop).ok_or(Unsigned::Time)
}

fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests;
