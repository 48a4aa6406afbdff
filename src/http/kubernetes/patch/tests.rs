use super::{PatchError, json_patch, merge};

const BYTES_MAX: usize = 1_000_000;

fn patched(target: &str, patch: &str) -> Result<String, PatchError> {
    json_patch(target, patch, BYTES_MAX)
}

fn is_malformed(result: &Result<String, PatchError>, message: &str) {
    assert_eq!(*result, Err(PatchError::Malformed(message.to_owned())));
}

/// The examples of RFC 7386, appendix A, whose patch is an object.
#[test]
fn merge_follows_the_examples_of_the_rfc() {
    for (target, patch, wanted) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        (r#"{"a":1,"b":2,"c":3}"#, r#"{"c":null,"a":null,"x":null}"#, r#"{"b":2}"#),
    ] {
        assert_eq!(merge(target, patch).as_deref(), Ok(wanted), "{target} + {patch}");
    }
}

#[test]
fn merge_keeps_the_text_of_what_it_does_not_touch() {
    let target =
        r#"{ "n": 9007199254740993, "\u0061": 1.10, "deep": {"x": [ 1e400 , -0.0], "y": 1}, "z": "\u00e9" }"#;
    assert_eq!(
        merge(target, r#"{"deep":{"y":12345678901234567890.50}}"#).as_deref(),
        Ok(
            r#"{"n":9007199254740993,"\u0061":1.10,"deep":{"x":[ 1e400 , -0.0],"y":12345678901234567890.50},"z":"\u00e9"}"#
        )
    );
    for unchanged in ["{}", r#"{"deep":{}}"#, r#"{"deep":{"y":1},"none":null}"#, r#"{"a":1.10}"#] {
        assert_eq!(merge(target, unchanged).as_deref(), Ok(target), "{unchanged}");
    }
}

#[test]
fn merge_refuses_what_a_cluster_does() {
    is_malformed(&merge("{}", "{"), "invalid JSON patch");
    is_malformed(&merge("{}", ""), "invalid JSON patch");
    is_malformed(&merge("{}", "null"), "Invalid JSON Patch");
    is_malformed(
        &merge("{}", "[]"),
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
    );
    is_malformed(&merge("{}", r#"{"a":{"b":1,"\u0062":2}}"#), "error decoding patch: duplicate field \"b\"");
    let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert!(merge("{}", &deep(128)).is_ok());
    is_malformed(&merge("{}", &deep(129)), "the patch is nested deeper than 128");
    is_malformed(&merge("{}", &deep(2_000)), "the patch is nested deeper than 128");
}

/// The examples of RFC 6902, appendix A.
#[test]
fn json_patch_follows_the_examples_of_the_rfc() {
    for (target, patch, wanted) in [
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
            Some(r#"{"foo":"bar","baz":"qux"}"#),
        ),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            Some(r#"{"foo":["bar","qux","baz"]}"#),
        ),
        (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, Some(r#"{"foo":"bar"}"#)),
        (
            r#"{"foo":["bar","qux","baz"]}"#,
            r#"[{"op":"remove","path":"/foo/1"}]"#,
            Some(r#"{"foo":["bar","baz"]}"#),
        ),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            Some(r#"{"baz":"boo","foo":"bar"}"#),
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            Some(r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#),
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            Some(r#"{"foo":["all","cows","eat","grass"]}"#),
        ),
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            Some(r#"{"baz":"qux","foo":["a",2,"c"]}"#),
        ),
        (r#"{"baz":"qux"}"#, r#"[{"op":"test","path":"/baz","value":"bar"}]"#, None),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            Some(r#"{"foo":"bar","child":{"grandchild":{}}}"#),
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
            Some(r#"{"foo":"bar","baz":"qux"}"#),
        ),
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#, None),
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, Some(r#"{"/":9,"~1":10}"#)),
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":"10"}]"#, None),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            Some(r#"{"foo":["bar",["abc","def"]]}"#),
        ),
    ] {
        match wanted {
            Some(wanted) => assert_eq!(patched(target, patch).as_deref(), Ok(wanted), "{target} + {patch}"),
            None => {
                assert!(matches!(patched(target, patch), Err(PatchError::Refused(_))), "{target} + {patch}");
            }
        }
    }
}

#[test]
fn recorded_json_patches_have_the_result_of_a_cluster() {
    let target = r#"{"metadata":{"labels":{"tier":"a"}},"spec":{"eur":6,"list":[3]}}"#;
    for (patch, wanted) in [
        (
            r#"[{"op":"replace","path":"/spec/eur","value":7},{"op":"add","path":"/metadata/labels/new","value":"x"}]"#,
            r#"{"metadata":{"labels":{"tier":"a","new":"x"}},"spec":{"eur":7,"list":[3]}}"#,
        ),
        (
            r#"[{"op":"test","path":"/spec/eur","value":6},{"op":"replace","path":"/spec/eur","value":8}]"#,
            r#"{"metadata":{"labels":{"tier":"a"}},"spec":{"eur":8,"list":[3]}}"#,
        ),
        (
            r#"[{"op":"copy","from":"/spec/eur","path":"/spec/eur2"},{"op":"move","from":"/spec/eur2","path":"/spec/eur3"}]"#,
            r#"{"metadata":{"labels":{"tier":"a"}},"spec":{"eur":6,"list":[3],"eur3":6}}"#,
        ),
        ("[]", target),
    ] {
        assert_eq!(patched(target, patch).as_deref(), Ok(wanted), "{patch}");
    }
    for refused in [
        r#"[{"op":"test","path":"/spec/eur","value":99},{"op":"replace","path":"/spec/eur","value":9}]"#,
        r#"[{"op":"test","path":"/metadata/resourceVersion","value":"1"}]"#,
        r#"[{"op":"remove","path":"/spec/none"}]"#,
        r#"[{"op":"replace","path":"/spec/none/x","value":1}]"#,
        r#"[{"op":"add","path":"/nope/x","value":1}]"#,
        r#"[{"op":"frob","path":"/spec/eur"}]"#,
    ] {
        assert!(matches!(patched(target, refused), Err(PatchError::Refused(_))), "{refused}");
    }
    is_malformed(
        &patched(target, r#"{"op":"test"}"#),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    is_malformed(&patched(target, "null"), "Invalid JSON Patch");
    is_malformed(&patched(target, "["), "invalid JSON patch");
    let operation = r#"{"op":"replace","path":"/spec/eur","value":7}"#;
    assert!(patched(target, &format!("[{}]", vec![operation; 10_000].join(","))).is_ok());
    assert_eq!(
        patched(target, &format!("[{}]", vec![operation; 10_001].join(","))),
        Err(PatchError::TooLarge(
            "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
        ))
    );
}

#[test]
fn operations_that_can_not_be_carried_out_are_refused() {
    let target = r#"{"a":{"b":[1,2]},"c":"text"}"#;
    for (refused, why) in [
        (r#"{"op":"add","path":"/a/x"}"#, "it has no value"),
        (r#"{"op":"add","value":1}"#, "it has no path"),
        (r#"{"op":"move","path":"/a/x"}"#, "it has no from"),
        (r#"{"path":"/a"}"#, "there is no such operation"),
        (r#"{"op":"remove","path":""}"#, "the whole object can't be removed"),
        (r#"{"op":"remove","path":"a"}"#, "a path is empty or begins with /"),
        (r#"{"op":"remove","path":"/a~2"}"#, "in a path, ~ is written ~0"),
        (r#"{"op":"remove","path":"/a/b/2"}"#, "there is no such member or element"),
        (r#"{"op":"remove","path":"/a/b/-"}"#, "there is no such member or element"),
        (r#"{"op":"add","path":"/a/b/01","value":1}"#, "there is no such member or element"),
        (r#"{"op":"add","path":"/a/b/3","value":1}"#, "there is no such member or element"),
        (r#"{"op":"add","path":"/c/x","value":1}"#, "there is no such member or element"),
        (r#"{"op":"replace","path":"/x","value":1}"#, "there is no such member or element"),
        (r#"{"op":"move","from":"/a","path":"/a/b/0"}"#, "a value can't be moved into itself"),
        (r#"{"op":"move","from":"/x","path":"/x"}"#, "there is no such member or element"),
    ] {
        let Err(PatchError::Refused(message)) = patched(target, &format!("[{refused}]")) else {
            panic!("{refused} is carried out");
        };
        assert!(message.starts_with("operation 0 (") && message.ends_with(why), "{refused}: {message}");
    }
    for malformed in ["[1]", "[null]", r#"[{"op":1,"path":""}]"#, r#"[{"op":"add","op":"test"}]"#] {
        assert!(matches!(patched(target, malformed), Err(PatchError::Malformed(_))), "{malformed}");
    }
}

#[test]
fn json_patch_keeps_the_text_of_what_it_does_not_touch() {
    let target = r#"{"n": 9007199254740993, "deep": {"x": [ 1e400 , 1.10], "y": 1}}"#;
    assert_eq!(
        patched(
            target,
            r#"[{"op":"add","path":"/deep/x/0","value":1.50},{"op":"add","path":"/null","value":null}]"#
        )
        .as_deref(),
        Ok(r#"{"n":9007199254740993,"deep":{"x":[1.50,1e400,1.10],"y":1},"null":null}"#)
    );
    let tests = r#"[{"op":"test","path":"/deep","value":{"y":1.0,"x":[10e399,1.1]}},{"op":"test","path":"","value":
        {"deep":{"x":[1e400,1.1],"y":1},"n":9007199254740993}}]"#;
    assert_eq!(patched(target, tests).as_deref(), Ok(target));
    let unequal = r#"[{"op":"test","path":"/n","value":9007199254740992}]"#;
    assert!(matches!(patched(target, unequal), Err(PatchError::Refused(_))));
    assert_eq!(
        patched(target, r#"[{"op":"replace","path":"","value":{"a":1}}]"#).as_deref(),
        Ok(r#"{"a":1}"#)
    );
}

#[test]
fn a_patch_can_not_take_more_than_its_share() {
    let doubled = r#"{"op":"copy","from":"/a","path":"/a/-"},"#.repeat(100);
    let copies = format!("[{}]", doubled.trim_end_matches(','));
    assert!(matches!(
        patched(r#"{"a":1,"b":2}"#, &copies),
        Err(PatchError::TooLarge(_) | PatchError::Refused(_))
    ));
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000));
    let copy = r#"[{"op":"copy","from":"/a","path":"/b"}]"#;
    assert!(matches!(json_patch(&large, copy, 1500), Err(PatchError::TooLarge(_))));
    assert!(json_patch(&large, copy, 2100).is_ok());

    let wrap = r#"{"op":"add","path":"/b","value":{}},{"op":"move","from":"/a","path":"/b/a"},{"op":"move","from":"/b","path":"/a"},"#;
    let wraps = |times: usize| format!("[{}]", wrap.repeat(times).trim_end_matches(','));
    assert!(patched(r#"{"a":1}"#, &wraps(100)).is_ok());
    assert!(matches!(patched(r#"{"a":1}"#, &wraps(3000)), Err(PatchError::Refused(_))));

    let wide = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(400_000));
    let inserts = r#"{"op":"add","path":"/a/0","value":1},"#.repeat(10_000);
    let inserts = format!("[{}]", inserts.trim_end_matches(','));
    assert!(matches!(patched(&wide, &inserts), Err(PatchError::TooLarge(_))));
}
