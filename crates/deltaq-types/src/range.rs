//! Range checks that run while a setting is deserialized, for `#[serde(deserialize_with = "...")]`.
//!
//! Every error has serde's form, "invalid value: integer `0`, expected a whole number from 1 to 100", so the range is
//! written once, at the field.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serializer};
use serde_json::Value;

use crate::duration::{self, DurationText, SignedDuration};
use crate::raw::RAW_TEXT;

/// Microseconds.
pub const US: u64 = 1;
/// Ten milliseconds, the shortest timeout.
pub const MS_10: u64 = 10_000;
/// A second.
pub const SEC: u64 = 1_000_000;
/// An hour.
pub const HOUR: u64 = 3_600 * SEC;
/// Half a day.
pub const HOURS_12: u64 = 12 * HOUR;
/// 366 days, the longest delay.
pub const DAYS_366: u64 = 366 * DAY;
/// A day.
pub const DAY: u64 = 24 * HOUR;
/// The longest head start, in either direction.
pub const HEAD_START_MAX: u64 = 7 * DAY;
/// A hundred years: no limit in practice.
pub const CENTURY: u64 = 36_500 * DAY;
/// The largest whole number of TOML.
pub const WHOLE_MAX: u64 = (1 << 53) - 1;
/// The largest `u32`.
pub const U32_MAX: u64 = u32::MAX as u64;

/// Up to 2^53, a float represents every whole number exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

thread_local! {
    static IS_STORED: Cell<bool> = const { Cell::new(false) };
}

/// Reads a stored document, which was checked when it was written. Its values may be out of range, because a store must be readable even if a
/// range has become narrower since.
pub fn stored<T>(read: impl FnOnce() -> T) -> T {
    struct Before(bool);

    impl Drop for Before {
        fn drop(&mut self) {
            IS_STORED.set(self.0);
        }
    }

    let _before = Before(IS_STORED.replace(true));
    read()
}

/// Whether a value is accepted. Outside its range, a value is accepted only in a stored document.
fn is_allowed(in_range: bool) -> bool {
    in_range || IS_STORED.get()
}

struct Named<T>(T);

/// Reads a table. By default, serde would also accept an array, in the order of the fields.
pub fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Named::deserialize(deserializer)?.0)
}

/// Like [`table`], for a value that may be absent.
pub fn optional_table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Named<T>>::deserialize(deserializer)?.map(|named| named.0))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }

        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

struct Whole<const MIN: u64, const MAX: u64>(u64);

/// A whole number from `MIN` to `MAX`. `T` must hold all of them.
pub fn whole<'de, const MIN: u64, const MAX: u64, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    fit(Whole::<MIN, MAX>::deserialize(deserializer)?.0)
}

/// Like [`whole`], for a value that may be absent.
pub fn optional_whole<'de, const MIN: u64, const MAX: u64, D, T>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    Option::<Whole<MIN, MAX>>::deserialize(deserializer)?.map(|whole| fit(whole.0)).transpose()
}

fn fit<T: TryFrom<u64>, E: de::Error>(number: u64) -> Result<T, E> {
    T::try_from(number).map_err(|_| E::custom("the number is too large for this machine"))
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range<const MIN: u64, const MAX: u64>;

        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Range<MIN, MAX> {
            type Value = Whole<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match MAX {
                    WHOLE_MAX => write!(f, "a whole number from {MIN}"),
                    _ => write!(f, "a whole number from {MIN} to {MAX}"),
                }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                is_allowed((MIN..=MAX).contains(&number))
                    .then_some(Whole(number))
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }

            /// JSON does not distinguish 5.0 from 5.
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
                if number.fract() != 0.0 || !(0.0..=EXACT_MAX).contains(&number) {
                    return Err(E::invalid_value(Unexpected::Float(number), &self));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 0 to 2^53"
                )]
                self.visit_u64(number as u64)
            }
        }

        deserializer.deserialize_any(Range)
    }
}

struct Number<const MAX: u64, const ZERO_ALLOWED: bool>(f64);

/// A finite number from 0 to `MAX`.
pub fn number<'de, const MAX: u64, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Number::<MAX, true>::deserialize(deserializer)?.0)
}

/// A finite number above 0, up to `MAX`.
pub fn positive<'de, const MAX: u64, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Number::<MAX, false>::deserialize(deserializer)?.0)
}

/// A number from 0.001 to `MAX` with at most three decimal places.
pub fn thousandths<'de, const MAX: u64, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = Number::<MAX, false>::deserialize(deserializer)?.0;
    #[expect(
        clippy::float_cmp,
        reason = "a number with three decimal places is read as the nearest float, and so is this quotient"
    )]
    let is_kept = number >= 0.001 && (number * 1_000.0).round() / 1_000.0 == number;
    let expected = format!("a number from 0.001 to {MAX} with at most 3 decimal places");
    is_allowed(is_kept)
        .then_some(number)
        .ok_or_else(|| de::Error::invalid_value(Unexpected::Float(number), &expected.as_str()))
}

/// Like [`number`], for a value that may be absent.
pub fn optional_number<'de, const MAX: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    Ok(Option::<Number<MAX, true>>::deserialize(deserializer)?.map(|number| number.0))
}

/// Writes a number; a whole one without a fraction.
pub fn write_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() != 0.0 || !(0.0..=EXACT_MAX).contains(number) {
        return serializer.serialize_f64(*number);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to 2^53"
    )]
    serializer.serialize_u64(*number as u64)
}

/// Like [`write_number`], for a value that may be absent.
pub fn write_optional_number<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => write_number(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// The standard library parses the text of a JSON number. `serde_json` may be off by the last bit, and a setting in the journal
/// must be read back exactly as it was written.
impl<'de, const MAX: u64, const ZERO_ALLOWED: bool> Deserialize<'de> for Number<MAX, ZERO_ALLOWED> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range<const MAX: u64, const ZERO_ALLOWED: bool>;

        impl<'de, const MAX: u64, const ZERO_ALLOWED: bool> Visitor<'de> for Range<MAX, ZERO_ALLOWED> {
            type Value = Number<MAX, ZERO_ALLOWED>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let begin = if ZERO_ALLOWED { "from 0 to" } else { "above 0, up to" };
                write!(f, "a number {begin} {MAX}")
            }

            #[expect(clippy::cast_precision_loss, reason = "only compared with small limits")]
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
                let in_range = (0.0..=MAX as f64).contains(&number) && (ZERO_ALLOWED || number > 0.0);
                is_allowed(in_range)
                    .then_some(Number(number))
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
            }

            #[expect(clippy::cast_precision_loss, reason = "only compared with small limits")]
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_f64(number as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "only compared with small limits")]
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_f64(number as f64)
            }

            /// Only JSON has raw text.
            fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
                inner.deserialize_any(self)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                if members.next_key::<String>()?.as_deref() != Some(RAW_TEXT) {
                    return Err(de::Error::invalid_type(Unexpected::Map, &self));
                }
                let text: String = members.next_value()?;
                match serde_json::from_str(&text).map_err(de::Error::custom)? {
                    Value::Number(number) if number.is_f64() => {
                        self.visit_f64(text.parse().map_err(de::Error::custom)?)
                    }
                    value => value.deserialize_any(self).map_err(de::Error::custom),
                }
            }
        }

        deserializer.deserialize_newtype_struct(RAW_TEXT, Range)
    }
}

struct Span<const MIN_US: u64, const MAX_US: u64>(DurationText);

/// A duration from `MIN_US` to `MAX_US` microseconds.
pub fn span<'de, const MIN_US: u64, const MAX_US: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<DurationText, D::Error> {
    Ok(Span::<MIN_US, MAX_US>::deserialize(deserializer)?.0)
}

/// Like [`span`], for a value that may be absent.
pub fn optional_span<'de, const MIN_US: u64, const MAX_US: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DurationText>, D::Error> {
    Ok(Option::<Span<MIN_US, MAX_US>>::deserialize(deserializer)?.map(|span| span.0))
}

impl<'de, const MIN_US: u64, const MAX_US: u64> Deserialize<'de> for Span<MIN_US, MAX_US> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (min, max) = (duration::format_us(MIN_US), duration::format_us(MAX_US));
        let expected = format!("a duration from {min} to {max}, such as \"30s\"");
        text(deserializer, &expected, |text| {
            let us = duration::parse_us(text).ok().filter(|us| is_allowed((MIN_US..=MAX_US).contains(us)));
            us.map(|us| Self(DurationText::from_us(us)))
        })
    }
}

/// A head start.
pub fn head_start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    text(deserializer, "a duration from -7d to 7d, such as \"10m\" or \"-10m\"", |text| {
        let duration = text.parse::<SignedDuration>().ok();
        duration.filter(|duration| is_allowed(duration.as_us().unsigned_abs() <= HEAD_START_MAX))
    })
}

/// Like [`head_start`], for a value that may be absent.
pub fn optional_head_start<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SignedDuration>, D::Error> {
    struct HeadStart(SignedDuration);

    impl<'de> Deserialize<'de> for HeadStart {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            head_start(deserializer).map(Self)
        }
    }

    Ok(Option::<HeadStart>::deserialize(deserializer)?.map(|head_start| head_start.0))
}

/// An address to listen on.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let expected = "an IP address and a port, such as \"127.0.0.1:7070\", \"localhost:7070\" or \":7070\" for all IPv4 addresses";
    text(deserializer, expected, listen_address)
}

/// An IP address and a port; an empty text means no address.
pub fn optional_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let expected = "an IP address and a port, such as \"127.0.0.1:7071\", \"localhost:7071\" or \":7071\" for all IPv4 addresses, or \"\"";
    let read = |text: &str| if text.is_empty() { Some(None) } else { listen_address(text).map(Some) };
    text(deserializer, expected, read)
}

/// Names are not resolved: `localhost` means the loopback address, and an empty host all IPv4 addresses.
fn listen_address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let ip = match host {
        "" => Ipv4Addr::UNSPECIFIED,
        host if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST,
        _ => return text.parse().ok(),
    };
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| port.parse().ok().map(|port: u16| SocketAddr::from((ip, port)))).flatten()
}

/// A path of the file system; `T` may be an option. A path that is not UTF-8 is refused: it arrives with replacement
/// characters, and would name another file.
pub fn path<'de, D: Deserializer<'de>, T: From<PathBuf>>(deserializer: D) -> Result<T, D::Error> {
    text(deserializer, "a path in UTF-8", |text| {
        let is_path = !text.is_empty() && !text.contains(['\0', '\u{fffd}']);
        is_path.then(|| T::from(PathBuf::from(text)))
    })
}

/// The URL of a PostgreSQL database, without a password. An error does not repeat the text, which may contain one.
pub fn database_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let form = "invalid value, expected a URL such as \"postgres://deltaq@db.example/deltaq\"";
    let text = String::deserialize(deserializer).map_err(|_| de::Error::custom(form))?;
    let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
    let rest = rest.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_graphic()));
    let rest = rest.ok_or_else(|| de::Error::custom(form))?;
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = location.split_once('/').map_or(location, |(authority, _)| authority);
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let is_password = |name: &str| name == "password" || name == "sslpassword";
    if user.contains(':')
        || query.split('&').any(|pair| is_password(pair.split('=').next().unwrap_or_default()))
    {
        return Err(de::Error::custom(
            "invalid value, expected a URL without a password, because settings are shown: put the password into the \
             variable PGPASSWORD or the file ~/.pgpass",
        ));
    }
    Ok(Some(text))
}

/// A URL for an error or a log: user, password and query, which may have secrets, are replaced by `***`. The text need not
/// be a URL.
#[must_use]
pub fn shown_url(text: &str) -> String {
    let (location, query) = text.split_once('?').map_or((text, ""), |(location, _)| (location, "?***"));
    // A password may have any character, so the last @ ends it. One in the query has ended the location.
    let location = match text.rsplit_once('@') {
        Some((before, _)) if before.len() >= location.len() => format!("{}***", scheme(location)),
        Some(_) => {
            let host = location.rsplit_once('@').map_or("", |(_, host)| host);
            format!("{}***@{host}", scheme(location))
        }
        None => location.to_owned(),
    };
    location + query
}

fn scheme(url: &str) -> &str {
    url.find("://").and_then(|at| url.get(..at + "://".len())).unwrap_or_default()
}

/// The URL in the form that the driver accepts: an IPv6 address in brackets moves from the host to the parameter `host`.
#[must_use]
pub fn plain_host(url: &str) -> String {
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    let Some((scheme, rest)) = location.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) else {
        return url.to_owned();
    };
    let at = if user.is_empty() { "" } else { "@" };
    // If the URL already has a parameter `host`, that one takes precedence, as in libpq.
    format!("{scheme}://{user}{at}localhost{port}{path}?host={address}&{query}")
}

/// A list of texts, or one text with commas between the entries, which is easier to write in the environment.
pub fn words<'de, D: Deserializer<'de>, U>(
    deserializer: D,
    expected: &str,
    read: impl FnMut(String) -> Option<U>,
) -> Result<Vec<U>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        List(Vec<String>),
        Text(String),
    }

    let entries = match Words::deserialize(deserializer) {
        Ok(Words::List(entries)) => Some(entries),
        Ok(Words::Text(text)) if text.is_empty() => Some(Vec::new()),
        Ok(Words::Text(text)) => Some(text.split(',').map(|entry| entry.trim().to_owned()).collect()),
        Err(_) => None,
    };
    entries
        .and_then(|entries| entries.into_iter().map(read).collect())
        .ok_or_else(|| de::Error::custom(format!("invalid value, expected {expected}")))
}

/// A text that `read` accepts.
pub fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<'a, F, T>(&'a str, F, PhantomData<T>);

    impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<'_, F, T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            let Self(expected, read, _) = self;
            read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &expected))
        }
    }

    deserializer.deserialize_str(Text(expected, read, PhantomData))
}

/// A value that `read` accepts. The whole value is read before it is checked, so that an error is about the setting and not about a part of it.
pub(super) fn whole_value<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &str,
    read: impl FnOnce(Value) -> Option<T>,
) -> Result<T, D::Error> {
    let wrong = || de::Error::custom(format!("invalid value, expected {expected}"));
    Value::deserialize(deserializer).ok().and_then(read).ok_or_else(wrong)
}

/// Whether the text is a JSON pointer (RFC 6901). The empty pointer is refused, because a whole object can't be a key.
pub(crate) fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}
