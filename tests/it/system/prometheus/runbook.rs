//! Each alert has a section in docs/runbook.md, and each section an alert.

use std::fs;
use std::path::Path;

use super::files;

#[test]
fn every_alert_has_its_section_and_every_section_its_alert() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbook.md");
    let text = fs::read_to_string(path).expect("the file is there");
    let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### Deltaq")).collect();
    let alerts = files::alerts();
    let names: Vec<&str> = alerts.iter().filter_map(|alert| alert.name.strip_prefix("Deltaq")).collect();
    assert_eq!(sections, names, "in the order of the rules");
    for alert in &alerts {
        assert!(["critical", "warning"].contains(&alert.severity.as_str()), "{alert:?}");
        assert_eq!(
            alert.runbook_url,
            format!("https://deltaq.example/docs/runbook.md#{}", alert.name.to_lowercase())
        );
    }
    for section in text.split("\n### Deltaq").skip(1) {
        for part in ["*Meaning*", "*Impact*", "*Diagnosis*", "*Fix*"] {
            let body = section.split("\n## ").next().unwrap_or_default();
            assert!(
                body.contains(part),
                "{part} is missing in Deltaq{}",
                body.lines().next().unwrap_or_default()
            );
        }
    }
}
