//! The files of the console: their weight, and that the page names all of them. The scripts of the console and of the simulator make no markup.

use super::root;

/// Most bytes of all files together.
const BYTES_MAX: u64 = 220_000;

#[test]
fn the_console_is_light_and_names_its_files() {
    let page = std::fs::read_to_string(root().join("console/index.html")).expect("the page");
    let mut bytes = 0;
    for entry in std::fs::read_dir(root().join("console")).expect("the folder") {
        let entry = entry.expect("a file");
        bytes += entry.metadata().expect("its size").len();
        let name = entry.file_name().into_string().expect("text");
        assert!(
            name == "index.html" || page.contains(&format!("\"{name}\"")),
            "index.html does not load {name}"
        );
    }
    assert!(bytes <= BYTES_MAX, "the console has {bytes} bytes, at most {BYTES_MAX}");
}

/// The page of settings shows what the schema says beside each field.
#[test]
fn the_schema_says_what_every_setting_of_a_queue_means() {
    let document = std::fs::read_to_string(root().join("docs/openapi.json")).expect("the document");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let settings =
        document["components"]["schemas"]["QueueSettings"]["properties"].as_object().expect("settings");
    for (name, schema) in settings {
        let description = &schema["description"];
        let description =
            if description.is_null() { &schema["oneOf"][0]["description"] } else { description };
        assert!(description.as_str().is_some_and(|text| text.len() > 10), "{name} has no description");
    }
}

/// Texts of producers, workers and scripts reach a page only as text nodes. The policy of the console refuses the rest in browsers that know Trusted
/// Types; this check holds for all.
#[test]
fn pages_make_no_markup_from_texts() {
    for source in ["console", "simulator/page"].into_iter().flat_map(|page| super::files(page, &["js"])) {
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ] {
            assert!(!source.text.contains(sink), "{}: {sink}", source.path);
        }
    }
}
