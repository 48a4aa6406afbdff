//! Tokens: authorization, expiry and grants.

use super::*;

fn entry(name: &str, token: &str) -> TokenEntry {
    let grants = vec![GrantEntry {
        verbs: vec![Verb::Produce, Verb::Read],
        queues: vec!["erp-*".to_owned()],
        sources: None,
    }];
    let (name, sha256) = (name.to_owned(), digest_text(token));
    TokenEntry {
        name,
        sha256,
        old_sha256: None,
        old_expires: None,
        expires: None,
        rate: None,
        burst: None,
        grants,
    }
}

fn tokens(entries: &[TokenEntry]) -> Result<Tokens, Error> {
    Tokens::new(entries, &Tokens::default())
}

#[test]
fn a_digest_equals_the_output_of_sha256sum() {
    assert_eq!(digest_text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn only_the_exact_token_is_accepted() {
    let tokens = tokens(&[entry("a", "secret-a"), entry("b", "secret-b")]).unwrap();
    assert_eq!(tokens.caller("secret-b", 0).unwrap().name(), "b");
    for wrong in ["", "secret", "secret-c", "secret-a ", "SECRET-A", &digest_text("secret-a")] {
        assert_eq!(tokens.caller(wrong, 0).unwrap_err(), Denied::Unknown, "{wrong:?}");
    }
}

#[test]
fn access_is_open_only_without_tokens() {
    let access = Access::default();
    assert!(access.is_open());
    access.replace(tokens(&[entry("a", "secret")]).unwrap());
    assert!(!access.is_open());
    access.replace(Tokens::default());
    assert!(access.is_open());
    assert!(!Access::new(tokens(&[entry("a", "secret")]).unwrap()).is_open());
}

#[test]
fn a_token_expires_at_its_instant() {
    let mut entry = entry("a", "secret");
    entry.expires = Some("1970-01-01T00:00:02Z".to_owned());
    let tokens = tokens(&[entry]).unwrap();
    assert!(tokens.caller("secret", 1_999_999).is_ok());
    assert_eq!(
        tokens.caller("secret", 2_000_000).unwrap_err(),
        Denied::Expired { at_us: 2_000_000, name: "a".into() }
    );
}

#[test]
fn a_grant_permits_its_verbs_on_its_queues() {
    let tokens = tokens(&[entry("a", "secret")]).unwrap();
    let caller = tokens.caller("secret", 0).unwrap();
    assert!(caller.may(Verb::Produce, "erp-prices") && caller.may(Verb::Read, "erp-"));
    assert!(!caller.may(Verb::Consume, "erp-prices") && !caller.may(Verb::Admin, "erp-prices"));
    assert!(!caller.may(Verb::Produce, "prices"));
    assert!(!caller.may_everywhere(Verb::Read));
}

#[test]
fn a_grant_may_be_bound_to_sources() {
    let mut bound = entry("a", "secret");
    bound.grants[0].sources = Some(vec!["erp".to_owned(), "Shop *".to_owned()]);
    let caller = tokens(&[bound]).unwrap().caller("secret", 0).unwrap();
    assert!(caller.may_produce("erp-prices", Some("erp")));
    assert!(caller.may_produce("erp-prices", Some("Shop 7")));
    for source in [None, Some("erp2"), Some("shop 7"), Some("")] {
        assert!(!caller.may_produce("erp-prices", source), "{source:?}");
    }
    assert!(!caller.may_produce("prices", Some("erp")));
    assert!(caller.may(Verb::Read, "erp-prices"), "the sources bind only produce calls");
    let free = tokens(&[entry("a", "secret")]).unwrap().caller("secret", 0).unwrap();
    assert!(free.may_produce("erp-prices", None) && free.may_produce("erp-prices", Some("x")));
}

#[test]
fn errors_name_the_invalid_field() {
    let change = |edit: fn(&mut TokenEntry)| {
        let mut wrong = entry("a", "secret");
        edit(&mut wrong);
        tokens(&[wrong]).unwrap_err().to_string()
    };
    for (message, field) in [
        (change(|entry| entry.sha256 = "abc".to_owned()), "sha256"),
        (change(|entry| entry.sha256 = "g".repeat(64)), "sha256"),
        (change(|entry| entry.expires = Some("tomorrow".to_owned())), "expires"),
        (change(|entry| entry.name = "a b".to_owned()), "name"),
        (change(|entry| entry.grants.clear()), "grants"),
        (change(|entry| entry.grants[0].queues[0] = "ERP".to_owned()), "queues"),
        (change(|entry| entry.grants[0].queues.clear()), "queues"),
        (change(|entry| entry.grants[0].verbs.clear()), "verbs"),
        (change(|entry| entry.grants[0].sources = Some(Vec::new())), "sources"),
        (change(|entry| entry.grants[0].sources = Some(vec!["a\nb".to_owned()])), "sources"),
        (
            change(|entry| {
                entry.grants[0].verbs = vec![Verb::Read];
                entry.grants[0].sources = Some(vec!["erp".to_owned()]);
            }),
            "sources",
        ),
        (change(|entry| entry.rate = Some(0)), "rate"),
        (change(|entry| entry.burst = Some(5)), "burst"),
    ] {
        assert!(message.contains(field), "{message}");
    }
    let twice = tokens(&[entry("a", "x"), entry("a", "y")]).unwrap_err();
    assert_eq!(twice, Error::Name { name: "a".to_owned() });
    let same = tokens(&[entry("a", "x"), entry("b", "x")]).unwrap_err();
    assert_eq!(same, Error::Secret { left: "a".to_owned(), right: "b".to_owned() });
}

#[test]
fn a_reload_does_not_reset_the_rate_limit() {
    let limited = TokenEntry { rate: Some(1), ..entry("a", "secret") };
    let before = tokens(std::slice::from_ref(&limited)).unwrap();
    before.caller("secret", 0).unwrap().count(0).unwrap();
    let after = Tokens::new(&[limited], &before).unwrap();
    after.caller("secret", 0).unwrap().count(0).unwrap_err();
}
