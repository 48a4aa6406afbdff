use deltaq_engine::object::scan;
use fastrand::Rng;
use serde_json::{Value, json};

use super::*;

fn pointers(texts: &[&str]) -> Vec<Pointer> {
    texts.iter().map(|text| Pointer::parse(text, false).expect("a pointer")).collect()
}

fn admission(schema: &str, prune: &[&str]) -> Admission {
    let schema = (!schema.is_empty()).then(|| Schema::compile(schema).expect("a schema"));
    Admission { schema, prune: pointers(prune) }
}

fn admit(admission: &Admission, text: &str) -> Result<String, Unfit> {
    let object = Object::from_valid(text);
    let changed = admission.admit(&object, true, 1 << 20)?;
    Ok(changed.unwrap_or(object).as_str().to_owned())
}

fn violations(schema: &str, text: &str) -> Vec<(String, String, String)> {
    match admit(&admission(schema, &[]), text) {
        Err(Unfit::Invalid(all)) => {
            all.into_iter().map(|one| (one.pointer, one.schema_pointer, one.detail)).collect()
        }
        other => panic!("{text} should be invalid: {other:?}"),
    }
}

#[test]
fn what_is_pruned_goes_and_all_else_keeps_its_text() {
    let pruned = |prune: &[&str], text: &str| admit(&admission("", prune), text).expect("admitted");
    let text =
        r#"{ "key" : "a", "n" : 1.0, "m":{"managed": 1, "kept":[1e400 , 12345678901234567890.10]},"x":null}"#;
    let kept = r#"{"key":"a","n":1.0,"m":{"kept":[1e400 , 12345678901234567890.10]}}"#;
    assert_eq!(pruned(&["/m/managed", "/x", "/absent/too"], text), kept);
    assert_eq!(pruned(&["/absent", "/n/0", "/m/kept/x"], text), text, "untouched is the very same text");
    assert_eq!(pruned(&["/a~1b", "/~0"], r#"{"a/b":1,"\u007e":2,"~0":3}"#), r#"{"~0":3}"#);
    assert_eq!(pruned(&["/a"], r#"{"\u0061":1,"b\"\\\u00e4" : "\u00e4" }"#), r#"{"b\"\\\u00e4":"\u00e4"}"#);
    assert_eq!(pruned(&["/a", "/a/b"], r#"{"a":{"b":1}}"#), "{}");
}

#[test]
fn elements_of_arrays_are_passed_and_not_pruned() {
    let admission = admission("", &["/list/0", "/list/1/b", "/list/-/b", "/list/01/b"]);
    let text = r#"{"list":[{"b":1},{"b":2,"c":3},{"b":4}]}"#;
    assert_eq!(admit(&admission, text).expect("admitted"), r#"{"list":[{"b":1},{"c":3},{"b":4}]}"#);
}

#[test]
fn defaults_fill_what_is_absent_and_nothing_else() {
    let schema = r##"{
        "properties": {
            "currency": {"default": "EUR"},
            "price": {"default": 1.0},
            "rate": {"default": 12345678901234567890.10e+3},
            "stock": {"default": {}, "properties": {"here": {"default": 0}}},
            "size": {"$ref": "#/$defs/size"},
            "weight": {"$ref": "#/$defs/size", "default": {"unit": "kg"}},
            "tags": {"items": {"properties": {"kind": {"default": "plain"}}}},
            "pair": {"prefixItems": [true, {"properties": {"right": {"default": true}}}]},
            "more": {"additionalProperties": {"properties": {"n": {"default": null}}}, "properties": {"not": true}},
            "maybe": {"anyOf": [{"properties": {"no": {"default": 1}}}], "if": true, "then": {"default": 1}}
        },
        "$defs": {"size": {"properties": {"unit": {"default": "mm"}, "h": {"default": 2}}}}
    }"##;
    let admission = admission(schema, &[]);
    let filled = |text: &str| admit(&admission, text).expect("admitted");
    let rest = r#""currency":"EUR","price":1.0,"rate":12345678901234567890.10e+3,"stock":{"here":0},"weight":{"unit":"kg","h":2}"#;
    assert_eq!(filled("{ }"), format!("{{{rest}}}"));
    let full = r#""currency":null,"price":1e400,"rate":"x","stock":{"here":3},"weight":7"#;
    let text = format!("{{ {full} }}");
    assert_eq!(filled(&text), text, "what is there is left alone, null and wrong types, too");
    let text = format!(
        "{{{full},\"tags\":[{{}},1],\"pair\":[{{}},{{}}],\"more\":{{\"a\":{{}},\"not\":{{}}}},\"maybe\":{{}},\"size\":{{\"h\" : 3.0}}}}"
    );
    let expected = format!(
        "{{{full},\"tags\":[{{\"kind\":\"plain\"}},1],\"pair\":[{{}},{{\"right\":true}}],\"more\":{{\"a\":{{\"n\":null}},\"not\":{{}}}},\"maybe\":{{}},\"size\":{{\"h\":3.0,\"unit\":\"mm\"}}}}"
    );
    assert_eq!(filled(&text), expected);
}

#[test]
fn references_of_an_embedded_document_go_by_it() {
    let schema = r##"{
        "properties": {"a": {"$ref": "#/$defs/own"}, "b": {"$ref": "#/$defs/own/properties/x"}},
        "$defs": {
            "own": {"$id": "https://x.test/own", "default": {}, "properties": {"x": {"$ref": "#/$defs/n"}},
                    "$defs": {"n": {"default": "inner"}}},
            "n": {"default": "outer"}
        }
    }"##;
    assert_eq!(admit(&admission(schema, &[]), "{}").expect("admitted"), r#"{"a":{"x":"inner"},"b":"inner"}"#);
}

#[test]
fn tuples_of_older_dialects_have_defaults_too() {
    let schema = r#"{
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"list": {
            "items": [{"properties": {"a": {"default": 1}}}],
            "additionalItems": {"properties": {"b": {"default": 2}}}
        }}
    }"#;
    let filled = admit(&admission(schema, &[]), r#"{"list":[{},{},{}]}"#).expect("admitted");
    assert_eq!(filled, r#"{"list":[{"a":1},{"b":2},{"b":2}]}"#);
}

#[test]
fn defaults_never_come_where_something_is_pruned() {
    let schema = r#"{"properties": {
        "a": {"default": {"secret": 1, "open": 2}, "properties": {"more": {"default": 3}}},
        "b": {"default": 4}
    }}"#;
    let admission = admission(schema, &["/a/secret", "/a/more", "/b"]);
    assert_eq!(admit(&admission, "{}").expect("admitted"), r#"{"a":{"open":2}}"#);
    let text = r#"{"a": {"open" : 2} }"#;
    assert_eq!(admit(&admission, text).expect("admitted"), text);
    assert_eq!(admit(&admission, r#"{"b":1,"a":0}"#).expect("admitted"), r#"{"a":0}"#);
}

#[test]
fn defaults_without_end_are_refused() {
    let endless = [
        r##"{"default": {}, "properties": {"child": {"$ref": "#"}}}"##,
        r##"{"properties": {"child": {"$ref": "#", "default": {}}}}"##,
        r##"{"properties": {"list": {"default": [{}], "items": {"$ref": "#"}}}}"##,
        r##"{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {
            "a": {"default": {"x": {}}, "properties": {"x": {"properties": {"y": {"$ref": "#/$defs/a"}}}}}}}"##,
    ];
    for schema in endless {
        assert_eq!(Schema::compile(schema).expect_err(schema), Error::Defaults, "{schema}");
    }
    // Each level contains the next level twice. The schema is short, but the defaults are larger than any object.
    let level = |n: usize| {
        let next = n + 1;
        format!(
            r##""l{n}":{{"default":{{}},"properties":{{"a":{{"$ref":"#/$defs/l{next}"}},"b":{{"$ref":"#/$defs/l{next}"}}}}}}"##
        )
    };
    let levels: Vec<String> = (0..40).map(level).collect();
    let schema = format!(r##"{{"$ref":"#/$defs/l0","$defs":{{{},"l40":{{}}}}}}"##, levels.join(","));
    assert_eq!(Schema::compile(&schema).expect_err("too large"), Error::Defaults);
    // A list that continues only where the object continues is finite.
    let list = r##"{"properties": {"next": {"$ref": "#"}, "n": {"default": 0}}}"##;
    let filled = admit(&admission(list, &[]), r#"{"next":{"next":{}}}"#).expect("admitted");
    assert_eq!(filled, r#"{"next":{"next":{"n":0},"n":0},"n":0}"#);
}

#[test]
fn filled_objects_are_bounded() {
    let schema = r#"{"properties": {"list": {"items": {"properties": {"a": {"default": "0123456789"}}}}}}"#;
    let admission = admission(schema, &[]);
    let object = Object::from_valid(&format!(r#"{{"list":[{}{{}}]}}"#, "{},".repeat(99)));
    assert_eq!(admission.admit(&object, true, 1_000), Err(Unfit::TooLarge { limit: 1_000 }));
    assert!(admission.admit(&object, true, 2_000).expect("it fits").is_some());
}

#[test]
fn violations_name_their_places() {
    let schema = r##"{
        "required": ["price"],
        "properties": {"price": {"type": "number", "minimum": 0}, "tags": {"items": {"$ref": "#/$defs/tag"}}},
        "$defs": {"tag": {"pattern": "^[a-z]+$"}}
    }"##;
    let own = |pointer: &str, schema: &str, detail: &str| {
        (pointer.to_owned(), schema.to_owned(), detail.to_owned())
    };
    assert_eq!(violations(schema, "{}"), [own("", "/required", "\"price\" is a required property")]);
    assert_eq!(
        violations(schema, r#"{"price":-1,"tags":["a","B"]}"#),
        [
            own("/price", "/properties/price/minimum", "-1 is less than the minimum of 0"),
            own("/tags/1", "/$defs/tag/pattern", "\"B\" does not match \"^[a-z]+$\""),
        ]
    );
}

#[test]
fn violations_are_few_and_short() {
    let schema = r#"{"properties": {"list": {"items": {"type": "string"}}, "long": {"type": "number"}}}"#;
    let all = violations(schema, &format!(r#"{{"list":[{}1]}}"#, "1,".repeat(1_000)));
    assert_eq!(all.len(), 20);
    let all = violations(schema, &format!(r#"{{"list":[{}1]}}"#, "1,".repeat(40_000)));
    assert_eq!(all.len(), 1, "of a large object only the first");
    let all = violations(schema, &format!(r#"{{"long":"{}"}}"#, "ü".repeat(30_000)));
    assert_eq!(all[0].2.chars().count(), 200);
    assert!(all[0].2.ends_with("üü…"));
}

#[test]
fn numbers_of_any_size_are_checked() {
    let schema = r#"{"properties": {"n": {"type": "number", "maximum": 10}, "i": {"type": "integer"}}}"#;
    let admission = admission(schema, &[]);
    for text in
        [r#"{"n":-1e400,"i":1.0}"#, r#"{"n":1e-400,"i":123456789012345678901234567890}"#, r#"{"n":-0.0}"#]
    {
        assert_eq!(admit(&admission, text).as_deref(), Ok(text));
    }
    assert!(admit(&admission, r#"{"n":1e400}"#).is_err());
    assert!(admit(&admission, r#"{"i":1.5}"#).is_err());
}

#[test]
fn wrong_schemas_say_where() {
    let error = |schema: &str| match Schema::compile(schema) {
        Err(Error::Schema { pointer, detail }) => (pointer, detail),
        other => panic!("{schema}: {other:?}"),
    };
    assert_eq!(error(r#"{"properties":{"a":{"type":"strin"}}}"#).0, "/properties/a/type");
    assert_eq!(error(r#"{"properties":{"a":{"pattern":"("}}}"#).0, "/properties/a/pattern");
    assert_eq!(error(r#"{"pattern":"^(?=a)"}"#).0, "/pattern", "what needs backtracking");
    assert_eq!(error(r#"{"pattern":"(a{1000}){1000}"}"#).0, "/pattern", "what is large once compiled");
    for remote in ["https://example.com/s.json", "file:///etc/passwd", "other.json", "#/$defs/none"] {
        let (_, detail) = error(&format!(r#"{{"$ref":"{remote}"}}"#));
        assert!(detail.contains(remote.trim_start_matches('#')), "{detail}");
    }
    assert!(error(r#"{"$schema":"https://example.com/own"}"#).1.contains("example.com/own"));
    let long = format!(r#"{{"title":"{}"}}"#, "a".repeat(SCHEMA_BYTES_MAX));
    assert!(matches!(Schema::compile(&long), Err(Error::SchemaTooLong { .. })));
    assert!(matches!(Schema::compile("[]"), Err(Error::SchemaText(_))));
}

#[test]
fn wrong_pointers_are_refused() {
    let new = |prune: &[&str], key: &[&str]| {
        let key = KeySpec::new(pointers(key)).expect("a key");
        check_prune(&pointers(prune), &key, Some(&pointers(&["/meta/version"])[0]))
    };
    for (prune, key) in [("/key", "/key"), ("/meta", "/meta/name"), ("/a~1b", "/a~1b/c")] {
        assert!(matches!(new(&[prune], &[key]), Err(Error::PrunesKey { .. })), "{prune} {key}");
    }
    assert!(new(&["/meta/name/x", "/meta/names", "/ke"], &["/meta/name", "/key"]).is_ok());
    assert!(matches!(new(&["/meta"], &["/key"]), Err(Error::PrunesVersion { .. })));
    let many = vec!["/a"; PRUNE_POINTERS_MAX + 1];
    assert_eq!(new(&many, &["/key"]), Err(Error::TooManyPointers { pointers: 101 }));
}

#[test]
fn the_text_of_a_schema_has_no_white_space() {
    let schema = Schema::compile(r#"{ "title" : "a b\" ]" , "properties":{} }"#).expect("a schema");
    assert_eq!(schema.into_text().as_str(), r#"{"title":"a b\" ]","properties":{}}"#);
}
#[test]
fn deep_and_self_referring_schemas_end() {
    let deep = |depth: usize| "{\"a\":".repeat(depth) + "{}" + &"}".repeat(depth);
    let recursive = r##"{"anyOf":[{"allOf":[{"properties":{"a":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}}]}],
        "properties":{"a":{"$ref":"#"},"n":{"default":1}}}"##;
    let filled = admit(&admission(recursive, &[]), &deep(127)).expect("admitted");
    assert_eq!(filled.matches("\"n\":1").count(), 128);
    let default = format!(r#"{{"properties":{{"x":{{"default":{}}}}}}}"#, deep(100));
    assert!(admit(&admission(&default, &[]), "{}").is_ok());
}

/// A schema of numbered subschemas. The first is the whole schema, and the last accepts every value.
fn numbered(count: usize, subschema: impl Fn(usize) -> String) -> String {
    let defs: Vec<String> = (1..count).map(|n| format!(r#""{n}":{}"#, subschema(n))).collect();
    let mut whole = subschema(0);
    whole.insert_str(1, &format!(r#""$defs":{{{},"{count}":{{}}}},"#, defs.join(",")));
    whole
}

#[test]
fn what_multiplies_in_one_value_is_refused() {
    let refused = |schema: &str| Schema::compile(schema).expect_err(schema);
    let next = |n: usize| format!(r##"{{"$ref":"#/$defs/{}"}}"##, n + 1);
    for word in ["oneOf", "anyOf", "allOf"] {
        let twice = |n| format!(r#"{{"{word}":[{},{}]}}"#, next(n), next(n));
        assert_eq!(refused(&numbered(28, twice)), Error::TooManyEvaluations, "{word}");
        assert!(Schema::compile(&numbered(8, twice)).is_ok());
    }
    let twice = |n: usize| format!(r#"{{"if":{0},"then":{0},"dependentSchemas":{{"a":{0}}}}}"#, next(n));
    assert_eq!(refused(&numbered(20, twice)), Error::TooManyEvaluations);
    let twice = |n| format!(r#"{{"allOf":[{}],"unevaluatedProperties":true}}"#, next(n));
    assert_eq!(
        refused(&numbered(20, twice)),
        Error::TooManyEvaluations,
        "what is unevaluated is looked for again"
    );
    // The same with anchors, with ids of embedded documents, and below the root of the object.
    let twice = |n: usize| {
        let both = format!(r##"{{"$ref":"#a{0}"}},{{"$dynamicRef":"#a{0}"}}"##, n + 1);
        format!(r#"{{"$anchor":"a{n}","oneOf":[{both}]}}"#)
    };
    let below = numbered(20, twice).replace(r#""20":{}"#, r#""20":{"$anchor":"a20"}"#);
    assert_eq!(refused(&below), Error::TooManyEvaluations);
    let twice = |n: usize| {
        let next = format!(r#"{{"$ref":"https://x.test/{}"}}"#, n + 1);
        format!(r#"{{"$id":"https://x.test/{n}","not":{{"anyOf":[{next},{next}]}}}}"#)
    };
    let embedded = numbered(20, twice).replace(r#""20":{}"#, r#""20":{"$id":"https://x.test/20"}"#);
    assert_eq!(refused(&embedded), Error::TooManyEvaluations);
}

#[test]
fn long_chains_and_circles_in_one_value_are_refused_at_once() {
    let next = |n: usize| format!(r##"{{"$ref":"#/$defs/{}","default":{n}}}"##, n + 1);
    assert_eq!(Schema::compile(&numbered(5_000, next)).expect_err("long"), Error::ChainTooLong);
    assert!(Schema::compile(&numbered(IN_PLACE_DEPTH_MAX - 1, next)).is_ok());
    for circle in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}],"properties":{"a":{"default":1}}}"##,
        r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"not":{"$ref":"#/$defs/a"}}]}}}"##,
    ] {
        assert_eq!(Schema::compile(circle).expect_err(circle), Error::Circle);
    }
    let names = |name: &str| {
        let both = format!(r#""{name}":"https://x.test/item","$anchor":"item""#);
        format!(r##"{{"properties":{{"a":{{"$ref":"#/$defs/item"}}}},"$defs":{{"item":{{{both}}}}}}}"##)
    };
    assert!(Schema::compile(&names("$id")).is_ok());
}

#[test]
fn references_that_are_followed_differently_end() {
    let schema = r##"{"$schema":"http://json-schema.org/draft-07/schema#","$defs":{"$id":"x","a":{"$ref":"#/a"}},
        "a":{},"properties":{"p":{"$ref":"#/$defs/a"}}}"##;
    let _ended = Schema::compile(schema);
}

#[test]
fn ordinary_schemas_that_name_one_another_are_taken() {
    let tree = r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"http://x.test/strict-tree",
        "$recursiveAnchor":true,"$ref":"tree","unevaluatedProperties":false,"$defs":{"tree":{"$id":"tree",
        "$recursiveAnchor":true,"type":"object","properties":{"data":true,"children":{"type":"array",
        "items":{"$recursiveRef":"#"}}}}}}"##;
    let versions = r#"{"$id":"https://x.test/v2/event","allOf":[{"$ref":"https://x.test/v1/event"}],
        "$defs":{"old":{"$id":"https://x.test/v1/event","required":["a"]}}}"#;
    let list = r##"{"definitions":{"node":{"properties":{"next":{"$ref":"#/definitions/node"}}}},
        "properties":{"head":{"$ref":"#/definitions/node"}}}"##;
    for schema in [tree, versions, list] {
        assert!(Schema::compile(schema).is_ok(), "{:?}", Schema::compile(schema).err());
    }
}

#[test]
fn a_schema_that_was_taken_once_is_loaded_whatever_it_costs() {
    let circle = r##"{"$ref":"#"}"##;
    assert_eq!(Schema::compile(circle).expect_err("circle"), Error::Circle);
    assert!(Schema::restore(circle).is_ok());
}

#[test]
fn the_deepest_object_is_checked_by_the_longest_chain() {
    let count = IN_PLACE_DEPTH_MAX / 2 - 2;
    let next = |n: usize| format!(r##"{{"allOf":[{{"$ref":"#/$defs/{}"}}]}}"##, n + 1);
    let last = format!(r##""{count}":{{"properties":{{"a":{{"$ref":"#"}}}}}}"##);
    let schema = numbered(count, next).replace(&format!(r#""{count}":{{}}"#), &last);
    for end in ["{}", "{\"b\":1}"] {
        let schema = schema.replacen('{', r#"{"additionalProperties":{"type":"object"},"#, 1);
        let deep = "{\"a\":".repeat(127) + end + &"}".repeat(127);
        assert_eq!(admit(&admission(&schema, &[]), &deep).is_ok(), end == "{}");
    }
}

#[test]
fn faults_without_number_are_not_looked_for() {
    // Each level has two alternatives that either both hold or both fail.
    let twice = r##"{"oneOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}"##;
    let deep = |depth: usize| "{\"a\":".repeat(depth) + "{}" + &"}".repeat(depth);
    let found = violations(twice, &deep(2));
    assert_eq!((&*found[0].0, &*found[0].1), ("", "/oneOf"));
    let found = violations(twice, &deep(60));
    assert_eq!((&*found[0].1, found.len()), ("", 1), "{found:?}");
    let all = r##"{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}],"required":["b"]}"##;
    let found = violations(all, &deep(100));
    assert_eq!(
        (&*found[0].1, found.len()),
        ("/required", 1),
        "the first is reported where that takes no search"
    );
    // The evaluations of disjoint subschemas are not multiplied.
    let syntax = r##"{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#"}},{"type":"object","additionalProperties":{"$ref":"#"}}]}"##;
    let found = violations(syntax, r#"{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":{"j":1}}}}}}}}}}}"#);
    assert_ne!(found[0].1, "", "{found:?}");
}

#[test]
fn the_size_of_a_schema_is_bounded_in_every_way() {
    let list = |count: usize, one: &str| vec![one; count].join(",");
    let patterns = |count: usize, pattern: &str| {
        let all: Vec<String> = (0..count).map(|n| format!(r#""{pattern}{n}":{{}}"#)).collect();
        format!(r#"{{"patternProperties":{{{}}}}}"#, all.join(","))
    };
    let error = Schema::compile(&patterns(PATTERNS_MAX + 1, "a")).expect_err("many");
    assert_eq!(error, Error::TooManyPatterns { patterns: PATTERNS_MAX + 1 });
    assert!(Schema::compile(&patterns(50, "^[a-z]{1,63}$")).is_ok());
    assert!(Schema::compile(&patterns(1, "[a-z]{3000}")).is_ok());
    assert!(Schema::compile(&patterns(900, "[a-z]{3000}")).is_err(), "many have less room each");
    let items = |count: usize| format!(r#"{{"prefixItems":[{}]}}"#, list(count, "{}"));
    assert_eq!(Schema::compile(&items(SUBSCHEMAS_MAX)).expect_err("many"), Error::TooManySubschemas);
    assert!(Schema::compile(&items(SUBSCHEMAS_MAX - 1)).is_ok());
    let names = (list(4_000, r#"{"$dynamicAnchor":"a"}"#), list(4_000, r##"{"$dynamicRef":"#a"}"##));
    let names = format!(r#"{{"prefixItems":[{},{}]}}"#, names.0, names.1);
    assert_eq!(Schema::compile(&names).expect_err("many edges"), Error::TooManySubschemas);
}

#[test]
fn a_long_default_is_not_kept_for_each_reference_to_it() {
    // The defaults are at locations where nothing is filled in without a value.
    let by = |refs: usize| {
        let (all, long) = (vec![r##"{"$ref":"#/$defs/d"}"##; refs].join(","), "x".repeat(100 << 10));
        format!(r#"{{"prefixItems":[{all}],"$defs":{{"d":{{"default":"{long}"}}}}}}"#)
    };
    assert_eq!(Schema::compile(&by(5_900)).expect_err("long"), Error::Defaults);
    assert!(Schema::compile(&by(10)).is_ok());
}

/// Names that both objects and schemas use, so that they match. One name needs an escape.
const NAMES: [&str; 5] = ["a", "b", "c\"", "0", "ü"];

fn name(rng: &mut Rng) -> String {
    Value::from(NAMES[rng.usize(..NAMES.len())]).to_string()
}

fn blank(rng: &mut Rng) -> &'static str {
    ["", "", " ", "\n "][rng.usize(..4)]
}

fn random_value(rng: &mut Rng, depth: usize) -> String {
    let scalars = ["null", "true", "1.0", "1e400", "12345678901234567890", "\"\\u0061\\\"\"", "-0", "\"{\""];
    let blank = blank(rng);
    match rng.usize(..if depth == 0 { 1 } else { 4 }) {
        0 => scalars[rng.usize(..scalars.len())].to_owned(),
        1 => {
            let elements: Vec<_> = (0..rng.usize(..3)).map(|_| random_value(rng, depth - 1)).collect();
            format!("[{blank}{}]", elements.join(","))
        }
        _ => random_object(rng, depth - 1),
    }
}

fn random_object(rng: &mut Rng, depth: usize) -> String {
    let mut names: Vec<&str> = NAMES.to_vec();
    rng.shuffle(&mut names);
    names.truncate(rng.usize(..4));
    let members: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (quoted, blank) = (Value::from(name).to_string(), blank(rng));
            format!("{blank}{quoted}{blank}:{}", random_value(rng, depth))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn random_schema(rng: &mut Rng, depth: usize) -> String {
    let mut parts = Vec::new();
    if rng.u8(..3) == 0 {
        parts.push(format!("\"default\":{}", random_value(rng, 2)));
    }
    if depth > 0 {
        let mut names: Vec<&str> = NAMES.to_vec();
        names.truncate(rng.usize(..4));
        let properties: Vec<_> = names
            .into_iter()
            .map(|name| format!("{}:{}", Value::from(name), random_schema(rng, depth - 1)))
            .collect();
        parts.push(format!("\"properties\":{{{}}}", properties.join(",")));
        for keyword in ["items", "additionalProperties"] {
            if rng.bool() {
                parts.push(format!("\"{keyword}\":{}", random_schema(rng, depth - 1)));
            }
        }
        if rng.u8(..4) == 0 {
            parts.push(format!("\"prefixItems\":[{}]", random_schema(rng, depth - 1)));
        }
    }
    if rng.u8(..4) == 0 {
        parts.push(format!("\"$ref\":\"#/$defs/{}\"", rng.u8(..2)));
    }
    format!("{{{}}}", parts.join(","))
}

#[test]
fn admitting_twice_is_admitting_once() {
    let (mut changed, mut ran, mut endless) = (0, 0, 0);
    for seed in 0..4_000 {
        let rng = &mut Rng::with_seed(seed);
        let defs = format!(r#"{{"0":{},"1":{}}}"#, random_schema(rng, 2), random_schema(rng, 1));
        let mut schema = random_schema(rng, 3);
        schema.insert_str(1, &format!("\"$defs\":{defs}{}", if schema.len() > 2 { "," } else { "" }));
        let Ok(schema) = Schema::compile(&schema) else { continue };
        let prune: Vec<String> = (0..rng.usize(..4))
            .map(|_| {
                let tokens: Vec<_> = (0..=rng.usize(..3)).map(|_| NAMES[rng.usize(..NAMES.len())]).collect();
                format!("/{}", tokens.join("/"))
            })
            .collect();
        let prune: Vec<&str> = prune.iter().map(String::as_str).collect();
        let prune = pointers(&prune);
        if check_prune(&prune, &KeySpec::default(), None).is_err() {
            continue;
        }
        let admission = Admission { schema: Some(schema), prune };
        let text = random_object(rng, 4);
        let once = match admit(&admission, &text) {
            Ok(once) => once,
            Err(unfit) => {
                assert_eq!(unfit, Unfit::TooDeep, "nothing else is asked of it");
                endless += 1;
                continue;
            }
        };
        scan(&once, &KeySpec::default()).expect("it is JSON");
        assert_eq!(admit(&admission, &once).as_deref(), Ok(&*once), "seed {seed}: {text} by {admission:?}");
        ran += 1;
        changed += u32::from(once != text);
    }
    assert!(ran > 2_000 && changed > 1_000, "{changed} of {ran} were changed");
    assert!(endless < 50, "{endless} had no end");
}

#[test]
fn what_is_untouched_is_the_same_member_for_member() {
    for seed in 0..500 {
        let rng = &mut Rng::with_seed(seed);
        let (text, gone) = (random_object(rng, 4), name(rng));
        let gone: String = serde_json::from_str(&gone).expect("a name");
        let pruned = admit(&admission("", &[&format!("/{gone}")]), &text).expect("admitted");
        let (before, after) =
            (Document::parse(&text).expect("JSON"), Document::parse(&pruned).expect("JSON"));
        let texts = |document: &Document<'_>| -> Vec<String> {
            let members = document.members().expect("an object").iter();
            members
                .filter(|member| member.name != *gone)
                .map(|member| format!("{}{}", member.quoted, member.value.text()))
                .collect()
        };
        assert_eq!(texts(&before), texts(&after), "seed {seed}: {text}");
        assert!(after.member(&gone).is_none());
    }
}

#[test]
fn formats_are_asserted_in_every_dialect() {
    for dialect in ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
    {
        let schema = json!({"$schema": dialect, "properties": {
            "at": {"format": "date-time"}, "own": {"format": "colour"},
        }});
        let admission = admission(&schema.to_string(), &[]);
        assert!(admit(&admission, r#"{"at":"2026-01-02T03:04:05Z","own":"?"}"#).is_ok());
        assert!(admit(&admission, r#"{"at":"yesterday"}"#).is_err(), "{dialect}");
    }
}
