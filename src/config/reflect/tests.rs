//! Tests of the settings of sources and of their errors.

use deltaq_types::duration::DurationText;

use super::*;

const REST: &str =
    "[sources.erp]\nqueue = \"prices\"\n[sources.erp.rest]\nlist = \"http://shop.example/prices\"\n";

fn message(text: &str) -> String {
    let (line, why) = read(text).unwrap_err();
    format!("line {line}: {why}")
}

#[test]
fn a_file_has_many_sources_with_defaults() {
    let text = format!(
        "{REST}[sources.crm]\nqueue = \"users\"\ninterval = \"5s\"\n[sources.crm.command]\nrun = [\"./dump\"]\n"
    );
    let reflect = read(&text).unwrap();
    assert_eq!(reflect.sources.keys().collect::<Vec<_>>(), ["crm", "erp"]);
    let erp = &reflect.sources["erp"];
    assert_eq!(
        (erp.queue.as_str(), erp.interval, erp.max_bytes),
        ("prices", DurationText::from_secs(60), 256 << 20)
    );
    assert_eq!(erp.rest.as_ref().unwrap().first_page, 1);
    assert_eq!(reflect.sources["crm"].interval, DurationText::from_secs(5));
}

#[test]
fn a_wrong_setting_is_named_with_its_line() {
    for (text, expected) in [
        ("", "line 1: invalid setting `sources`: a value is required"),
        ("[sources]\n", "line 1: invalid setting `sources`: a source is required, such as [sources.erp]"),
        ("[sources.erp]\nqueue = \"prices\n", "line 2: "),
        ("[sources.erp]\nqueue = \"prices\"\n", "line 1: invalid setting `sources.erp`: it has no kind"),
        (
            "[sources.erp]\nqueue = \"Prices\"\n",
            "line 2: invalid setting `sources.erp.queue`: a queue name is made of",
        ),
        (
            &REST.replace("list", "lst"),
            "line 4: unknown setting `sources.erp.rest.lst`; did you mean `list`?",
        ),
        (&REST.replace("queue", "queu"), "line 2: unknown setting `sources.erp.queu`; did you mean `queue`?"),
        (
            &REST.replace("[sources.erp.rest]", "[sources.erp.rset]"),
            "line 3: unknown setting `sources.erp.rset`; did you mean `rest`?",
        ),
        (
            &REST.replace("queue", "interval = \"0s\"\nqueue"),
            "line 2: invalid setting `sources.erp.interval`: invalid value: string \"0s\", expected a duration from 10ms",
        ),
        (
            &REST.replace("http://", "http://user:secret@"),
            "line 4: invalid setting `sources.erp.rest.list`: invalid value, expected a URL without a user",
        ),
        (
            &format!("{REST}items = \"data\"\n"),
            "line 5: invalid setting `sources.erp.rest.items`: invalid value: string \"data\", expected a JSON pointer",
        ),
        (
            &format!("{REST}next = \"/next\"\npage_parameter = \"page\"\n"),
            "line 1: invalid setting `sources.erp.rest.page_parameter`: next is set",
        ),
        (
            &format!("{REST}[sources.erp.command]\nrun = [\"a\"]\n"),
            "line 1: invalid setting `sources.erp`: it has several kinds, rest and command",
        ),
        (&format!("metrics_listen = \"nowhere\"\n{REST}"), "line 1: invalid setting `metrics_listen`: "),
    ] {
        let message = message(text);
        assert!(message.starts_with(expected), "{text}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

#[test]
fn a_wrong_flag_is_named_as_a_flag() {
    let mut source = Table::new();
    source.insert("queue".to_owned(), Value::String("prices".to_owned()));
    source.insert("interval".to_owned(), Value::String("soon".to_owned()));
    let flag_of = |setting: &str| Some(format!("--{setting}"));
    let error = from_flags("erp", source, None, flag_of).unwrap_err().to_string();
    assert!(error.starts_with("--interval: invalid value: string \"soon\", expected a duration"), "{error}");
}
