use axum::http::HeaderName;

use super::*;

fn hook(rest: &str) -> Hook {
    serde_json::from_str(&format!(r#"{{"scheme":"github","secrets":["s"]{rest}}}"#)).unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn reason(reading: Reading) -> &'static str {
    match reading {
        Reading::Unapplied(unapplied) => unapplied.reason.as_str(),
        other => panic!("it can be applied: {other:?}"),
    }
}

const ISSUES: &str = r#","object":"/issue","only":[{"header":"x-github-event","values":["issues"]},
    {"pointer":"/action","values":["opened","deleted"]}],"deleted":{"pointer":"/action","values":["deleted"]}"#;

#[test]
fn the_object_is_the_text_at_its_pointer() {
    let (hook, given) = (hook(ISSUES), headers(&[("x-github-event", "issues")]));
    let body = r#" {"action":"opened","issue": {"node_id":"I_1", "n":1.50} }"#;
    let object = r#"{"node_id":"I_1", "n":1.50}"#.to_owned();
    let change = Change { kind: DeltaKind::Updated, object: object.clone() };
    assert_eq!(read(&hook, &given, Some(body)), Reading::Change(change));
    let change = Change { kind: DeltaKind::Deleted, object };
    assert_eq!(read(&hook, &given, Some(&body.replace("opened", "deleted"))), Reading::Change(change));
}

#[test]
fn only_is_looked_at_before_the_object() {
    let (hook, issues) = (hook(ISSUES), headers(&[("x-github-event", "issues")]));
    let comment = headers(&[("x-github-event", "issue_comment")]);
    let body = r#"{"action":"deleted","issue":{"node_id":"I_1"}}"#;
    assert_eq!(reason(read(&hook, &comment, Some(body))), "filtered");
    assert_eq!(reason(read(&hook, &headers(&[]), Some(body))), "filtered");
    assert_eq!(reason(read(&hook, &issues, Some(r#"{"action":"pinned","issue":{}}"#))), "filtered");
    assert_eq!(reason(read(&hook, &issues, Some(r#"{"zen":"x"}"#))), "filtered");
    assert_eq!(reason(read(&hook, &issues, Some(r#"{"action":"opened","issue":[]}"#))), "no_object");
    assert_eq!(reason(read(&hook, &issues, Some(r#"{"action":"opened"}"#))), "no_object");
    for body in [Some("[]"), Some("{"), Some(""), Some(r#"{"a":1,"a":2}"#), None] {
        assert_eq!(reason(read(&hook, &issues, body)), "invalid_json", "{body:?}");
    }
}

#[test]
fn values_of_the_body_are_compared_as_their_json() {
    let hook = hook(r#","only":[{"pointer":"/a","values":["1.0","true","x\"y"]}]"#);
    let is_read = |body: &str| matches!(read(&hook, &HeaderMap::new(), Some(body)), Reading::Change(_));
    for body in [r#"{"a":1.0}"#, r#"{"a":true}"#, r#"{"a":"x\"y"}"#, r#"{"a":"x\u0022y"}"#, r#"{"a":"true"}"#]
    {
        assert!(is_read(body), "{body}");
    }
    for body in [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":["true"]}"#, "{}"] {
        assert!(!is_read(body), "{body}");
    }
}

#[test]
fn a_challenge_is_answered_only_for_slack() {
    let body = r#"{"type":"url_verification","challenge":"3eZb"}"#;
    let slack: Hook = serde_json::from_str(r#"{"scheme":"slack","secrets":["s"]}"#).unwrap();
    assert_eq!(read(&slack, &HeaderMap::new(), Some(body)), Reading::Challenge("3eZb".to_owned()));
    assert!(matches!(read(&hook(""), &HeaderMap::new(), Some(body)), Reading::Change(_)));
}

#[test]
fn an_id_is_found_where_the_vendor_or_the_setting_says() {
    let given = headers(&[("x-github-delivery", "d-1"), ("x-id", "e-1")]);
    let body = Some(r#"{"id":7}"#);
    let by_default = id_of(&hook(""), &given, body);
    assert!(by_default.is_some() && by_default == id_of(&hook(""), &given, None));
    assert_ne!(by_default, id_of(&hook(r#","id":"header:x-id""#), &given, body));
    assert!(id_of(&hook(r#","id":"/id""#), &given, body).is_some());
    assert_eq!(id_of(&hook(r#","id":"/other""#), &given, body), None);
    assert_eq!(id_of(&hook(r#","id":"/id""#), &given, Some(r#"{"id":true}"#)), None);
    assert_eq!(id_of(&hook(""), &headers(&[("x-github-delivery", "")]), body), None);
}

#[test]
fn no_credential_is_kept() {
    let given = headers(&[
        ("x-github-event", "issues"),
        ("x-hub-signature-256", "sha256=00"),
        ("x-gitlab-token", "secret"),
        ("webhook-signature", "v1,AA"),
        ("authorization", "Bearer secret"),
        ("cookie", "secret"),
        ("x-mine", "a"),
        ("content-type", "application/json"),
    ]);
    let names = |hook: &Hook| -> Vec<String> {
        kept_headers(hook, &given).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&hook("")), ["content-type", "x-github-event"]);
    let own = hook(r#","deleted":{"header":"x-mine","values":["a"]}"#);
    assert_eq!(names(&own), ["x-mine", "content-type", "x-github-event"]);
    let signed = Hook { signature: serde_json::from_str(r#"{"header":"x-mine"}"#).unwrap(), ..own };
    assert_eq!(names(&signed), ["content-type", "x-github-event"]);
}
