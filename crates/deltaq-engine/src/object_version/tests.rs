use std::cmp::Ordering;

use super::*;

fn read(text: &str) -> Result<ObjectVersion, VersionError> {
    let pointer = Pointer::parse("/meta/at", false).expect("valid");
    ObjectVersion::read(&pointer, &Object::from_valid(text))
}

fn version(value: &str) -> ObjectVersion {
    read(&format!(r#"{{"a":[{{"meta":1}},"x"],"meta":{{"b":{{"at":9}},"at":{value},"z":1}}}}"#)).expect(value)
}

#[test]
fn versions_have_one_order() {
    let ordered = [
        "-1e99999999999999999",
        "-12345678901234567890123456789.2",
        "-12345678901234567890123456789.1",
        "-1e3",
        "-999",
        "-0.1",
        "-1e-99999999999999999",
        "0",
        "1e-400",
        "0.00000000000000000000000000012",
        "0.001",
        "0.0011",
        "0.1",
        "0.9",
        "1",
        "1.0000000000000000000001",
        "9",
        "10",
        "11",
        "99",
        "9007199254740992",
        "9007199254740993",
        "12345678901234567890123456789",
        "12345678901234567890123456790",
        "1e400",
        "1e401",
        "1e99999999999999999",
        r#""""#,
        r#""10""#,
        r#""2""#,
        r#""2026-11-21T04:20:03.491Z""#,
        r#""2026-11-21T04:20:04Z""#,
        r#""a""#,
        r#""aa""#,
        r#""\u00e9""#,
        r#""\ud83d\ude00""#,
    ];
    for (index, older) in ordered.iter().enumerate() {
        assert_eq!(version(older), version(older));
        for newer in ordered.iter().skip(index + 1) {
            assert!(version(older) < version(newer), "{older} < {newer}");
            assert!(version(newer) > version(older), "{newer} > {older}");
        }
    }
}

#[test]
fn equal_versions_are_equal_however_they_are_written() {
    let equal = [
        vec!["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000e000000000000000000000000"],
        vec!["0", "-0", "0.0", "0e5", "-0.000e-7", "0e0000000000000000000000000000000"],
        vec!["-1200", "-1.2e3", "-12E2", "-12000.0e-1"],
        vec!["100000000000000000000000", "1e23", "1E+23"],
        vec![r#""aé""#, r#""\u0061\u00e9""#],
    ];
    for same in equal {
        for other in &same {
            assert_eq!(version(same[0]), version(other), "{} == {other}", same[0]);
            assert_eq!(version(same[0]).cmp(&version(other)), Ordering::Equal);
        }
    }
}

#[test]
fn a_stored_version_comes_back() {
    for text in
        ["1", "-0.5", "1700000000123", "1e-7", "1e99999999999999999", "-12345678901234567890.125", "0"]
    {
        let stored = serde_json::to_string(&version(text)).expect("it can be written");
        let back: ObjectVersion = serde_json::from_str(&stored).expect("it can be read");
        assert_eq!(back, version(text), "{stored}");
        assert_eq!(version(&stored), version(text), "{stored}");
    }
    for text in [r#""""#, r#""a\"\\\n""#, r#""1""#] {
        let stored = serde_json::to_string(&version(text)).expect("it can be written");
        assert_eq!(serde_json::from_str::<ObjectVersion>(&stored).expect("it can be read"), version(text));
    }
    assert_eq!(
        serde_json::to_string(&version("1700000000000.0")).expect("it can be written"),
        "1700000000000"
    );
    assert!(serde_json::from_str::<ObjectVersion>("true").is_err());
}

#[test]
fn a_version_is_a_number_or_a_string_of_limited_length() {
    let pointer: Arc<str> = "/meta/at".into();
    for text in ["{}", r#"{"meta":{"at":null}}"#, r#"{"meta":[1]}"#, r#"{"meta":3}"#, r#"{"at":1}"#] {
        assert_eq!(read(text), Err(VersionError::Missing { pointer: pointer.clone() }), "{text}");
    }
    for (value, found) in [("true", "a boolean"), ("[]", "an array"), ("{}", "an object")] {
        let error = VersionError::NotComparable { pointer: pointer.clone(), found };
        assert_eq!(read(&format!(r#"{{"meta":{{"at":{value}}}}}"#)), Err(error));
    }
    for (value, bytes) in [(format!("\"{}\"", "x".repeat(257)), 257), ("1".repeat(5_000), 5_000)] {
        let error = VersionError::TooLong { pointer: pointer.clone(), bytes };
        assert_eq!(read(&format!(r#"{{"meta":{{"at":{value}}}}}"#)), Err(error));
    }
    assert!(read(&format!(r#"{{"meta":{{"at":"{}"}}}}"#, "x".repeat(256))).is_ok());
    assert!(read(&format!(r#"{{"meta":{{"at":{}}}}}"#, "1".repeat(256))).is_ok());
    let error = VersionError::Exponent { pointer };
    assert_eq!(read(r#"{"meta":{"at":1e100000000000000000}}"#), Err(error));
}

#[test]
fn a_version_is_found_behind_long_numbers_and_in_arrays() {
    let long = "7".repeat(10_000);
    assert_eq!(read(&format!(r#"{{"x":[{long},{{"y":{long}.5}}],"meta":{{"at":2}}}}"#)), Ok(version("2")));
    let pointer = Pointer::parse("/a/1/v~1w", false).expect("valid");
    let object = Object::from_valid(r#"{"a":[{"v/w":1},{"v/w":2}]}"#);
    assert_eq!(ObjectVersion::read(&pointer, &object), Ok(version("2")));
}
