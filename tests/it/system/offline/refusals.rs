//! Folders without a usable store, and exit codes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use super::*;

/// The errors of all commands on a folder. Each must be one line.
#[track_caller]
fn refused(scratch: &Scratch, folder: &Path) -> String {
    let to = scratch.path("copy.db");
    let said = check(folder).refused();
    let backup = run("backup --data-dir", &[folder, Path::new("--to"), &to]).refused();
    assert!(!to.exists(), "{backup}");
    let export = run("export --queue q --data-dir", &[folder]).refused();
    let mut others = vec![backup, export];
    // An import makes a store where nothing is.
    if !said.contains("there is no data directory") && !said.contains("is empty") {
        others.push(run_with("import --queue q --data-dir", &[folder], "").refused());
    }
    for other in others {
        assert!(
            other.starts_with("deltaq: ") && other.contains("store") == said.contains("store"),
            "{other}"
        );
    }
    said
}

#[tokio::test]
async fn what_is_no_store_is_told_in_one_line() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    assert!(refused(&scratch, &folder).contains("there is no data directory"));
    assert!(!folder.exists(), "nothing is made");
    fs::create_dir(&folder).expect("a folder");
    assert!(refused(&scratch, &folder).contains("data is empty: `deltaq serve --data-dir` creates a store"));
    fs::write(folder.join("notes.txt"), "x").expect("a file");
    assert!(refused(&scratch, &folder).contains("is not a deltaq store"));
    assert!(refused(&scratch, &folder.join("notes.txt")).contains("is not a directory"));
    let names = fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(names, 1, "nothing is left behind");

    fs::write(folder.join("deltaq.db"), vec![b'x'; 9_000]).expect("a file");
    assert!(check(&folder).refused().contains("damaged"));
    fs::remove_file(folder.join("deltaq.db")).expect("a file");
    fs::write(folder.join("deltaq.db"), "").expect("a file");
    change(&folder, "CREATE TABLE photos (name TEXT)").await;
    assert!(check(&folder).refused().contains("a database of another program"));
    fs::write(folder.join("deltaq.db"), "").expect("a file");
    assert!(check(&folder).refused().contains("it never contained a store"));
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused_by_all() {
    let scratch = Scratch::new();
    let folder = scratch.store("data");
    change(
        &folder,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (7, 'later', TRUE, x'00', 0)",
    )
    .await;
    let said = refused(&scratch, &folder);
    assert!(said.contains("has version 7") && said.contains("start a newer program"), "{said}");
}

#[test]
fn a_store_that_lost_its_database_is_told_from_an_empty_folder() {
    let scratch = Scratch::new();
    let folder = scratch.store("data");
    fs::remove_file(folder.join("deltaq.db")).expect("a file");
    let said = refused(&scratch, &folder);
    assert!(said.contains("deltaq.db is missing") && said.contains("exists: put deltaq.db back"), "{said}");
}

#[test]
fn wrong_usage_is_exit_code_2_and_help_says_everything() {
    for words in [
        "check",
        "backup --data-dir x",
        "export --data-dir x --queue NOT/A/NAME",
        "check --data-dir x --json",
    ] {
        let ran = run(words, &[]);
        assert_eq!(ran.code, Some(2), "{words}: {ran:?}");
    }
    for (command, says) in [
        ("check", "history only"),
        ("backup", "To restore a backup"),
        ("export", "application/x-ndjson"),
        ("import", "The import is atomic"),
    ] {
        let help = run(&format!("{command} --help"), &[]).printed();
        assert!(help.contains(says) && help.contains("Exit code"), "{help}");
        // The description of --url is that of all commands.
        let is_short = |line: &str| line.len() <= 120 || line.contains("DELTAQ_URL");
        assert!(help.lines().all(is_short), "{help}");
    }
}

#[test]
fn no_file_is_written_over() {
    let scratch = Scratch::new();
    let folder = scratch.store("data");
    run_with("import --queue q --data-dir", &[&folder], "").printed();
    let to = scratch.path("precious");
    fs::write(&to, "mine").expect("a file");
    for words in ["backup --data-dir", "export --queue q --data-dir"] {
        let said = run(words, &[&folder, Path::new("--to"), &to]).refused();
        assert!(said.contains("precious exists already"), "{said}");
        assert_eq!(fs::read_to_string(&to).expect("a file"), "mine");
    }
    // Beside the database, SQLite or a start would mistake the copy for another file.
    for name in ["deltaq.db-journal", "copy.db", "../data/copy.db"] {
        let said = run("backup --data-dir", &[&folder, Path::new("--to"), &folder.join(name)]).refused();
        assert!(said.contains("is in the data directory"), "{said}");
    }
    let nowhere = scratch.path("no/such/folder/copy.db");
    let said = run("backup --data-dir", &[&folder, Path::new("--to"), &nowhere]).refused();
    assert!(said.contains("can't write"), "{said}");
}

#[test]
fn a_data_directory_that_is_no_text_is_refused_and_not_another_one_made() {
    let scratch = Scratch::new();
    let folder = scratch.0.join(OsStr::from_bytes(b"nu\xffx"));
    for words in ["serve --listen 127.0.0.1:0 --data-dir", "import --queue q --data-dir"] {
        let said = run(words, &[&folder]).refused();
        assert!(said.contains("--data-dir") && said.contains("a path in UTF-8"), "{said}");
    }
    assert_eq!(fs::read_dir(&scratch.0).expect("a folder").count(), 0);
}
