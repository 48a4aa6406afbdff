//! Which texts may be keys and values of labels.

/// Longest value, and longest name of a key, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Longest prefix of a key, in bytes.
const PREFIX_BYTES_MAX: usize = 253;

const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Refuses what can't be the key of a label, with the message of apimachinery.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let errors = key_errors(key);
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("<nil>: Invalid value: {key:?}: {}", errors.join("; ")))
}

fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > PREFIX_BYTES_MAX {
                    errors.push(format!("prefix part must be no more than {PREFIX_BYTES_MAX} bytes"));
                }
                if !is_subdomain(prefix) {
                    errors.push(format!("prefix part {PREFIX_FORM}"));
                }
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES_MAX {
        errors.push(format!("name part must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_FORM}"));
    }
    errors
}

/// Refuses what can't be the value of a label, with the message of apimachinery.
pub(super) fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    let mut errors = Vec::new();
    if value.len() > NAME_BYTES_MAX {
        errors.push(format!("must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_FORM.to_owned());
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {}", errors.join("; ")))
}

/// Several errors as one text, as an aggregate of apimachinery is printed.
pub(super) fn joined(errors: &[String]) -> Result<(), String> {
    match errors {
        [] => Ok(()),
        [error] => Err(error.clone()),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Labels of lower case letters, digits and inner `-`, between dots.
fn is_subdomain(text: &str) -> bool {
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes.iter().all(|byte| *byte == b'-' || is_edge(Some(byte)))
    })
}
