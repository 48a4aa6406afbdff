//! A strict parser of `/metrics`: errors that a lenient parser would ignore fail here.

use std::collections::BTreeMap;

/// The values of a page by series, as in `deltaq_items{queue="q",state="ready"}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    pub(crate) values: BTreeMap<String, f64>,
    /// The type of each family, by its name.
    pub(crate) types: BTreeMap<String, String>,
}

impl Page {
    /// Parses a page. Each family has one HELP, one TYPE and then all its series; no series is there twice.
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let (mut help, mut family) = (String::new(), String::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, about) = rest.split_once(' ').expect("a text");
                assert!(!about.is_empty(), "{line}");
                name.clone_into(&mut help);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(name, help, "HELP comes right before TYPE");
                let before = page.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is there twice");
                name.clone_into(&mut family);
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let name = series.split('{').next().unwrap_or_default();
                assert_eq!(page.family_of(name), family, "{line} is below another family");
                let before = page.values.insert(series.to_owned(), value.parse().expect("a number"));
                assert_eq!(before, None, "{series} is there twice");
            }
        }
        page
    }

    fn family_of(&self, name: &str) -> String {
        let parts = ["_bucket", "_sum", "_count"];
        let base = parts.iter().find_map(|part| name.strip_suffix(part));
        let base = base.filter(|base| self.types.get(*base).is_some_and(|kind| kind == "histogram"));
        base.unwrap_or(name).to_owned()
    }

    /// The value of a series, which must exist.
    #[track_caller]
    pub(crate) fn value(&self, series: &str) -> f64 {
        *self.values.get(series).unwrap_or_else(|| panic!("there is no {series}"))
    }

    /// The values of the series of a queue, without the queue's label.
    pub(crate) fn of_queue(&self, queue: &str) -> BTreeMap<String, f64> {
        let labels = [format!("name=\"{queue}\""), format!("queue=\"{queue}\"")];
        let own = self.values.iter().filter_map(|(series, value)| {
            let label = labels.iter().find(|label| series.contains(&format!("{{{label}")))?;
            let short = series.replacen(label.as_str(), "", 1).replace("{,", "{").replace("{}", "");
            Some((short, *value))
        });
        own.collect()
    }

    /// The names of the queues with series of their own.
    pub(crate) fn queues(&self) -> Vec<String> {
        let depths = self.values.keys().filter_map(|series| series.strip_prefix("workqueue_depth{name=\""));
        depths.map(|rest| rest.trim_end_matches("\"}").to_owned()).collect()
    }
}

#[test]
fn a_malformed_page_is_refused() {
    let refused = |text: &str| std::panic::catch_unwind(|| Page::read(text)).is_err();
    let good = "# HELP a_total b c\n# TYPE a_total counter\na_total{x=\"1\"} 1\na_total{x=\"2\"} 2\n";
    assert!((Page::read(good).value("a_total{x=\"2\"}") - 2.0).abs() < f64::EPSILON);
    assert!(refused(&format!("{good}{good}")), "a family twice");
    assert!(refused(&format!("{good}a_total{{x=\"1\"}} 1\n")), "a series twice");
    assert!(
        refused(&format!("{good}# HELP b c\n# TYPE b gauge\nb 1\na_total{{x=\"3\"}} 1\n")),
        "not together"
    );
    assert!(refused("a 1\n"), "no type");
    assert!(refused("# TYPE a gauge\na 1\n"), "no help");
}
