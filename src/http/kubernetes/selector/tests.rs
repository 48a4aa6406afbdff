use super::{FieldSelector, LabelSelector, labels_of};

/// Six objects: `tier` is a or b in turn, every third has `odd`.
fn selected(text: &str) -> Result<Vec<usize>, String> {
    let selector = LabelSelector::parse(text)?;
    let labels = |index: usize| {
        let mut labels =
            vec![("tier".to_owned(), if index.is_multiple_of(2) { "a" } else { "b" }.to_owned())];
        if index.is_multiple_of(3) {
            labels.push(("odd".to_owned(), "yes".to_owned()));
        }
        labels
    };
    Ok((0..6).filter(|index| selector.matches(&labels(*index))).collect())
}

#[test]
fn recorded_label_selectors_select_what_a_cluster_does() {
    let all = [0, 1, 2, 3, 4, 5].as_slice();
    for (text, wanted) in [
        ("", all),
        ("tier=a", &[0, 2, 4]),
        ("tier==a", &[0, 2, 4]),
        ("tier = a", &[0, 2, 4]),
        ("tier!=a", &[1, 3, 5]),
        ("tier in (a, b)", all),
        ("tier in ()", &[]),
        ("tier notin (a)", &[1, 3, 5]),
        ("odd", &[0, 3]),
        ("!odd", &[1, 2, 4, 5]),
        ("tier=a,odd", &[0]),
        ("tier=a,tier=b", &[]),
        ("tier>1", &[]),
        ("example.com/k=v", &[]),
        ("none notin (a)", all),
        ("none!=a", all),
        ("tier=", &[]),
        ("in in (in,notin)", &[]),
        ("tier in (a,)", &[0, 2, 4]),
    ] {
        assert_eq!(selected(text).as_deref(), Ok(wanted), "{text}");
    }
}

#[test]
fn recorded_label_selectors_are_refused_with_the_messages_of_a_cluster() {
    let long = "x".repeat(64);
    for (text, wanted) in [
        ("tier in (a", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("tier=a,", "found '', expected: identifier after ','".to_owned()),
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("=a", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        (
            "bad key!=x",
            "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt".to_owned(),
        ),
        (
            "tier gt 1",
            "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt".to_owned(),
        ),
        (
            &format!("{long}=a"),
            format!(
                "unable to parse requirement: <nil>: Invalid value: {long:?}: name part must be no more than 63 bytes"
            ),
        ),
        (
            &format!("tier={long}"),
            format!(
                "unable to parse requirement: values[0][tier]: Invalid value: {long:?}: must be no more than 63 bytes"
            ),
        ),
        (
            "tier=ünï",
            "unable to parse requirement: values[0][tier]: Invalid value: \"ünï\": a valid label must be an empty \
             string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        ),
        (
            "tier>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
             be an integer"
                .to_owned(),
        ),
        ("!tier=a", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("tier in", "unable to parse requirement: found '' expected: '('".to_owned()),
        ("tier in (a,", "unable to parse requirement: found '', expected: ',', or identifier".to_owned()),
        ("tier in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
        ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("tier=(", "unable to parse requirement: found '(', expected: identifier".to_owned()),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap_err(), wanted, "{text}");
    }
}

#[test]
fn keys_of_labels_have_a_prefix_and_a_name() {
    for good in ["a", "A", "a.b", "a_b-c", "example.com/a", "1.2/x", &format!("{}/a", "p".repeat(253))] {
        assert!(LabelSelector::parse(good).is_ok(), "{good}");
    }
    for bad in
        ["-a", "a-", "/a", "a/", "a/b/c", "Example.com/a", "a..b/c", "é", &format!("{}/a", "p".repeat(254))]
    {
        assert!(LabelSelector::parse(bad).is_err(), "{bad}");
    }
    let two = LabelSelector::parse("tier in (-,_)").unwrap_err();
    assert!(two.starts_with("unable to parse requirement: [values[0][tier]: "), "{two}");
}

#[test]
fn numbers_are_compared_as_numbers() {
    let labels = |value: &str| vec![("weight".to_owned(), value.to_owned())];
    let above = LabelSelector::parse("weight>9").unwrap();
    assert!(above.matches(&labels("10")) && !above.matches(&labels("9")) && !above.matches(&labels("x")));
    let below = LabelSelector::parse("weight<9").unwrap();
    assert!(below.matches(&labels("-3")) && !below.matches(&labels("9")) && !below.matches(&[]));
}

#[test]
fn labels_are_the_texts_of_the_metadata() {
    let labels = |text: &str| labels_of(text);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        labels(
            r#"{"spec":{"labels":{"no":"x"}},"metadata":{"name":"a","labels":{"tier":"a","n":1,"q":"\"é"}},"x":[}"#
        ),
        [pair("tier", "a"), pair("q", "\"é")]
    );
    assert_eq!(labels(r#"{"metadat\u0061":{"labels":{"a":"b"}}}"#), [pair("a", "b")]);
    for none in [
        "{}",
        "[]",
        "",
        "1",
        r#"{"metadata":1}"#,
        r#"{"metadata":["labels"]}"#,
        r#"{"metadata":{"labels":null}}"#,
        r#"{"metadata":{"labels":["a"]}}"#,
        r#"{"spec":{"metadata":{"labels":{"a":"b"}}}}"#,
    ] {
        assert_eq!(labels(none), [], "{none}");
    }
}

#[test]
fn recorded_field_selectors_select_what_a_cluster_does() {
    for (text, wanted) in [
        ("", true),
        (",", true),
        ("metadata.name=p01", true),
        ("metadata.name==p01", true),
        ("metadata.name!=p01", false),
        ("metadata.namespace=other", false),
        ("metadata.namespace!=other", true),
        ("metadata.name=p01,metadata.namespace=shop", true),
        ("metadata.name=p01,metadata.name=p02", false),
        ("metadata.name=", false),
        ("metadata.name=none", false),
        (r"metadata.name=a\,b", false),
    ] {
        let selector = FieldSelector::parse(text, true).unwrap();
        assert_eq!(selector.matches("shop", "p01"), wanted, "{text}");
    }
    let escaped = FieldSelector::parse(r"metadata.name=a\,b\=c\\d", true).unwrap();
    assert_eq!(escaped.only_name(), Some(r"a,b=c\d"));
    let other = FieldSelector::parse("metadata.namespace=shop,metadata.name!=x", true).unwrap();
    assert_eq!(other.only_name(), None);
    assert!(FieldSelector::parse(",", true).unwrap().is_empty() && !other.is_empty());
}

#[test]
fn recorded_field_selectors_are_refused_with_the_messages_of_a_cluster() {
    for (text, wanted) in [
        ("spec.eur=1", "field label not supported: spec.eur"),
        ("garbage", "invalid selector: 'garbage'; can't understand 'garbage'"),
        (
            "metadata.name in (a)",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        ),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
    ] {
        assert_eq!(FieldSelector::parse(text, true).unwrap_err(), wanted, "{text}");
    }
    assert_eq!(
        FieldSelector::parse("metadata.namespace=shop", false).unwrap_err(),
        "field label not supported: metadata.namespace"
    );
}
