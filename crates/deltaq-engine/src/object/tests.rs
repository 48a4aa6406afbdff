//! Reading objects: their keys, their errors, their members.

use super::*;
use crate::pointer::Pointer;

fn spec(pointers: &[&str]) -> KeySpec {
    let parse = |text: &&str| Pointer::parse(text, false).expect("pointer");
    KeySpec::new(pointers.iter().map(parse).collect()).expect("spec")
}

fn key_of(text: &str, pointers: &[&str]) -> Result<String, KeyError> {
    scan(text, &spec(pointers)).expect("json").key.map(|key| key.as_str().to_owned())
}

fn is_same(a: &Object, b: &Object) -> bool {
    a.change_to(b, &Ignored::default()) == Change::None
}

#[test]
fn keys_are_read_at_their_pointers() {
    assert_eq!(key_of(r#"{"key":"a"}"#, &["/key"]), Ok("a".to_owned()));
    assert_eq!(key_of(r#" {"x":{"key":"no"},"key":12} "#, &["/key"]), Ok("12".to_owned()));
    let nested = r#"{"metadata":{"name":"n","namespace":"s"},"list":[{"id":1},{"id":2}]}"#;
    assert_eq!(key_of(nested, &["/metadata/namespace", "/metadata/name"]), Ok("s/n".to_owned()));
    assert_eq!(key_of(nested, &["/list/1/id"]), Ok("2".to_owned()));
    assert_eq!(key_of(r#"{"a\u0041":"x"}"#, &["/aA"]), Ok("x".to_owned()));
    assert_eq!(key_of(r#"{"key":"\u00fc"}"#, &["/key"]), Ok("ü".to_owned()));
}

#[test]
fn wrong_key_parts_are_named() {
    let missing = Err(KeyError::Missing { pointer: "/key".into() });
    assert_eq!(key_of("{}", &["/key"]), missing);
    assert_eq!(key_of(r#"{"key":null}"#, &["/key"]), missing);
    assert_eq!(key_of(r#"{"key":""}"#, &["/key"]), missing);
    for (value, found) in [
        ("1.5", "a number"),
        ("1e3", "a number"),
        ("true", "a boolean"),
        ("{}", "an object"),
        ("[1]", "an array"),
    ] {
        let text = format!(r#"{{"key":{value}}}"#);
        let wrong = Err(KeyError::NotText { pointer: "/key".into(), found });
        assert_eq!(key_of(&text, &["/key"]), wrong, "{value}");
    }
}

#[test]
fn bad_json_is_placed() {
    let error = |text: &str| scan(text, &KeySpec::default()).expect_err("bad");
    assert_eq!((error("{\n \"a\" 1}").line, error("{\n \"a\" 1}").column), (2, 6));
    assert!(error(r#"{"a":1,"a":2}"#).reason.contains("twice"));
    assert!(error(r#"{"b":{"a":1,"\u0061":2}}"#).reason.contains("twice"));
    assert!(error("[1]").not_an_object);
    assert!(error(&("{\"a\":".repeat(129) + "1" + &"}".repeat(129))).reason.contains("deeper"));
    assert!(scan(&("{\"a\":".repeat(128) + "1" + &"}".repeat(128)), &KeySpec::default()).is_ok());
    let envelope = |depth: usize| format!("{{\"object\":{}1{}}}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert!(check_envelope(&envelope(128)).is_ok(), "what add takes, seed takes, too");
    assert!(check_envelope(&envelope(129)).is_err());
    for text in ["", "{", "{\"a\":}", "{\"a\":01}", "{\"a\":1,}", "{} x", "{\"a\":NaN}", "{\"a\":\"\u{1}\"}"]
    {
        error(text);
    }
    let wide: Vec<String> = (0..40).chain([39]).map(|n| format!("\"m{n}\":1")).collect();
    assert!(error(&format!("{{{}}}", wide.join(","))).reason.contains("twice"));
}

#[test]
fn text_survives_as_sent() {
    let text = r#"{"key":"a","n":1234567890123456789012345678901234567890.10e+400}"#;
    assert_eq!(scan(text, &KeySpec::default()).expect("json").object.as_str(), text);
}

#[test]
fn a_number_may_have_any_length() {
    let digits = "9".repeat(1_000_000);
    for number in [digits.clone(), format!("-{digits}"), format!("{digits}.{digits}e+{digits}")] {
        for text in
            [format!("{{\"a\":{number}, \"b\":[{number},1,{{}}]}}"), format!("{{\"b\":[[{number} ]]}}")]
        {
            assert_eq!(scan(&text, &KeySpec::default()).expect("json").object.as_str(), text);
            check_envelope(&format!("{{\"object\":{text}}}")).expect("json");
        }
        let bad = format!("{{\n\"a\":{number},\n\"b\":}}");
        let error = scan(&bad, &KeySpec::default()).expect_err("bad");
        assert_eq!((error.line, error.column), (3, 5), "{error}");
    }
    for end in [".", "e", ".e1", "x", "-"] {
        let bad = format!("{{\"a\":{}{end}}}", "1".repeat(5_000));
        let error = scan(&bad, &KeySpec::default()).expect_err(end);
        assert!(error.line == 1 && error.column > 5_000, "{end}: {error}");
    }
    let object = |number: &str| Object::from_valid(&format!("{{\"a\":{number} , \"b\":1}}"));
    let turned = Object::from_valid(&format!("{{\"b\":1,\"a\":{digits}}}"));
    assert!(is_same(&object(&digits), &turned));
    assert!(!is_same(&object(&digits[1..]), &turned));
}

#[test]
fn many_and_one_are_told_apart() {
    let spec = KeySpec::default();
    let read = |text: &str| -> Result<(Vec<String>, bool), SyntaxError> {
        let mut objects = Objects::new(text)?;
        let mut texts = Vec::new();
        while let Some(scanned) = objects.next_object(&spec)? {
            texts.push(scanned.object.as_str().to_owned());
        }
        Ok((texts, objects.is_list()))
    };
    let (texts, many) = read(r#" [ {"key":"a"} , {"key":"b"} ] "#).expect("json");
    assert!(many);
    assert_eq!(texts, [r#"{"key":"a"}"#, r#"{"key":"b"}"#]);
    assert!(!read("{}").expect("json").1);
    for empty in [" []", " null "] {
        assert_eq!(read(empty).expect("json"), (Vec::new(), true), "{empty}");
    }
    assert!(read("nul").is_err() && read("null null").is_err());
    assert!(read("[1]").expect_err("bad").not_an_object);
    let index = |text: &str| read(text).expect_err("bad").index;
    assert_eq!(index(r#"[{"key":"a"},1]"#), Some(1));
    assert_eq!(index(r#"[{"key":"a"},{"key":"b"},{"key":}]"#), Some(2));
    assert_eq!(index(r#"[{"key":"a"} {"key":"b"}]"#), None);
    assert_eq!(index(r#"{"key":}"#), None);
    assert_eq!(index("[] x"), None);
    assert_eq!(index("{} x"), None);
}

#[test]
fn reading_stops_where_the_caller_does() {
    let mut objects = Objects::new(r#"[{}, {"a":1}, not JSON"#).expect("a list");
    assert_eq!(objects.next_object(&KeySpec::default()).expect("json").expect("one").object.as_str(), "{}");
    assert_eq!(objects.next_text().expect("json"), Some(r#"{"a":1}"#));
    assert_eq!(objects.next_text().expect_err("bad").index, Some(2));
    let mut one = Objects::of_envelopes(" 7 ").expect("a value");
    assert_eq!(one.next_text().expect("json"), Some("7"));
    assert_eq!(one.next_text().expect("the end"), None);
}

#[test]
fn many_names_are_compared_as_they_read() {
    let names = |last: &str| {
        let all: Vec<String> = (0..2_000).map(|n| format!("\"m\\u0041{n}\" : 1")).collect();
        scan(&format!("{{ {} , \"{last}\":2}}", all.join(" ,\n")), &KeySpec::default())
    };
    assert!(names("m").is_ok());
    for twice in ["mA7", "mA1999", "m\\u00411999"] {
        let error = names(twice).expect_err(twice);
        assert!(error.reason.contains("appears twice"), "{error}");
        assert_eq!((error.line, error.column), (2_000, 21), "{error}");
    }
}

#[test]
fn content_ignores_order_escapes_and_the_text_of_numbers() {
    let object = |text: &str| Object::from_valid(text);
    let same = |a: &str, b: &str| is_same(&object(a), &object(b));
    assert!(same(r#"{"a":1,"b":[1,{"c":2,"d":3}]}"#, r#"{ "b":[1,{"d":3,"c":2}], "a":1 }"#));
    assert!(same(r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#));
    assert!(same(r#"{"a":1,"b":[4.90,-0]}"#, r#"{"b":[49e-1,0.0],"a":1.0}"#));
    assert!(!same(r#"{"a":1}"#, r#"{"a":"1"}"#));
    assert!(!same(r#"{"a":1e400}"#, r#"{"a":1e401}"#));
    assert!(!same(r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#));
    assert!(!same(r#"{"a":null}"#, "{}"));
}

/// Scalars, each with all its texts.
const SCALARS: [&[&str]; 8] = [
    &["1", "1.0", "10e-1"],
    &["-0", "0", "0e9"],
    &["4.9", "4.90", "0.49E1"],
    &["true"],
    &["false"],
    &["null"],
    &[r#""A""#, r#""\u0041""#],
    &[r#""""#],
];

/// A random value, the same value written in another way (order of members, blanks, escapes, numbers), and its form for
/// a plain comparison: members in the order of their names, each scalar as the name of its value.
fn twice(random: &mut fastrand::Rng, depth: u32) -> (String, String, String) {
    let parts = |random: &mut fastrand::Rng| -> Vec<(String, String, String)> {
        (0..random.usize(0..4)).map(|_| twice(random, depth - 1)).collect()
    };
    match random.u32(0..4) {
        0 if depth > 0 => {
            let parts = parts(random);
            let join = |part: fn(&(String, String, String)) -> &str, separator: &str| {
                format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(separator))
            };
            (join(|part| &part.0, ","), join(|part| &part.1, " , "), join(|part| &part.2, ","))
        }
        1 | 2 if depth > 0 => {
            let parts = parts(random);
            let member = |(n, part): (usize, &(String, String, String))| {
                [
                    format!("\"m{n}\":{}", part.0),
                    format!("\"\\u006d{n}\" : {}", part.1),
                    format!("m{n}:{}", part.2),
                ]
            };
            let (mut a, mut b, mut form) = (Vec::new(), Vec::new(), Vec::new());
            for [first, second, plain] in parts.iter().enumerate().map(member) {
                a.push(first);
                b.push(second);
                form.push(plain);
            }
            random.shuffle(&mut b);
            (
                format!("{{{}}}", a.join(",")),
                format!("{{{}}}", b.join(",\n")),
                format!("{{{}}}", form.join(",")),
            )
        }
        _ => {
            let value = random.usize(0..SCALARS.len());
            let mut text = || random.choice(SCALARS[value]).copied().unwrap_or_default().to_owned();
            (text(), text(), format!("scalar {value}"))
        }
    }
}

#[test]
fn equal_content_is_what_a_plain_comparison_of_sorted_members_says() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut same = 0;
    for _ in 0..20_000 {
        let (a, b, form) = twice(&mut random, 3);
        let (other, _, other_form) = twice(&mut random, 2);
        let object = |value: &str| Object::from_valid(&format!("{{\"a\":{value}}}"));
        assert!(is_same(&object(&a), &object(&b)), "{a} and {b}");
        let expected = form == other_form;
        same += usize::from(expected);
        assert_eq!(is_same(&object(&b), &object(&other)), expected, "{b} and {other}");
    }
    assert!(same > 100, "only {same} of the independent pairs were equal");
}
