//! Replies of public APIs, with and without another page.

use reqwest::header::{HeaderName, HeaderValue};

use super::*;

/// Why a list of three objects in one page is not the whole list.
fn why(headers: &[(&'static str, &'static str)], document: &str, items: &str) -> Option<String> {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let headers = headers.iter().map(pair).collect();
    let document: &RawValue = serde_json::from_str(document).unwrap();
    Signs::new(&headers, Some(document), items).why(Read { objects: 3, pages: 1, is_numbered: false })
}

/// Replies with another page: the document, the pointer to the list, and what is said.
const PAGED: &[(&str, &str, &str)] = &[
    // Stripe, Django REST Framework, Microsoft Graph, HAL, JSON:API.
    ("{\"data\":[],\"has_more\":true}", "/data", "its member /has_more says that another page follows"),
    (
        "{\"count\":9,\"next\":\"http://a/?page=2\",\"results\":[]}",
        "/results",
        "its member /next says that another page follows; --next /next leads to it",
    ),
    (
        "{\"@odata.nextLink\":\"https://a/?$skip=3\",\"value\":[]}",
        "/value",
        "its member /@odata.nextLink says",
    ),
    (
        "{\"_links\":{\"self\":{\"href\":\"/a\"},\"next\":{\"href\":\"/a?page=2\"}},\"items\":[]}",
        "/items",
        "its member /_links/next says that another page follows; --next /_links/next/href leads to it",
    ),
    (
        "{\"links\":{\"next\":\"http://a/2\",\"last\":\"http://a/9\"},\"data\":[]}",
        "/data",
        "its member /links/next says",
    ),
    // Google, AWS, Slack, Salesforce, Airtable, DynamoDB, MediaWiki.
    (
        "{\"nextPageToken\":\"abc\",\"items\":[]}",
        "/items",
        "its member /nextPageToken says that another page follows; --next /nextPageToken with --next-parameter NAME leads to it",
    ),
    ("{\"Items\":[],\"NextToken\":\"abc\"}", "/Items", "its member /NextToken"),
    (
        "{\"Contents\":[],\"IsTruncated\":true,\"NextContinuationToken\":\"x\"}",
        "/Contents",
        "its member /IsTruncated",
    ),
    (
        "{\"members\":[],\"response_metadata\":{\"next_cursor\":\"d\"}}",
        "/members",
        "its member /response_metadata/next_cursor",
    ),
    (
        "{\"totalSize\":9,\"done\":false,\"nextRecordsUrl\":\"/q/1\",\"records\":[]}",
        "/records",
        "its member /nextRecordsUrl says that another page follows; --next /nextRecordsUrl leads",
    ),
    ("{\"records\":[],\"offset\":\"itr1/rec2\"}", "/records", "its member /offset"),
    ("{\"Items\":[],\"LastEvaluatedKey\":{\"id\":{\"S\":\"a\"}}}", "/Items", "its member /LastEvaluatedKey"),
    (
        "{\"continue\":{\"apcontinue\":\"B\"},\"query\":{\"pages\":[]}}",
        "/query/pages",
        "its member /continue",
    ),
    // GraphQL, Spring, Bitbucket, Pipedrive, HubSpot, FHIR, OData 2, Hydra.
    (
        "{\"data\":{\"all\":{\"pageInfo\":{\"hasNextPage\":true},\"nodes\":[]}}}",
        "/data/all/nodes",
        "its member /data/all/pageInfo/hasNextPage",
    ),
    ("{\"content\":[],\"last\":false,\"totalPages\":2}", "/content", "its member /last says"),
    ("{\"isLastPage\":false,\"values\":[],\"nextPageStart\":25}", "/values", "its member /isLastPage"),
    (
        "{\"data\":[],\"additional_data\":{\"pagination\":{\"more_items_in_collection\":true}}}",
        "/data",
        "its member /additional_data/pagination/more_items",
    ),
    (
        "{\"results\":[],\"paging\":{\"next\":{\"after\":\"5\",\"link\":\"https://a\"}}}",
        "/results",
        "its member /paging/next says that another page follows; --next /paging/next/link leads",
    ),
    (
        "{\"link\":[{\"relation\":\"next\",\"url\":\"http://a\"}],\"entry\":[]}",
        "/entry",
        "its member /link says that another page follows; a link in an array",
    ),
    ("{\"d\":{\"results\":[],\"__next\":\"http://a\"}}", "/d/results", "its member /d/__next"),
    (
        "{\"hydra:view\":{\"hydra:next\":\"/a?page=2\"},\"hydra:member\":[]}",
        "/hydra:member",
        "its member /hydra:view/hydra:next",
    ),
    // Numbers: of Elasticsearch, Laravel, Jira, Rick and Morty; and lists that are cut short.
    (
        "{\"hits\":{\"total\":{\"value\":10000,\"relation\":\"gte\"},\"hits\":[]}}",
        "/hits/hits",
        "its member /hits/total says that there are 10000 objects, and it has 3",
    ),
    (
        "{\"data\":[],\"last_page\":4}",
        "/data",
        "its member /last_page says that there are 4 pages, and 1 were read",
    ),
    (
        "{\"issues\":[],\"total\":4,\"maxResults\":3,\"startAt\":0}",
        "/issues",
        "its member /total says that there are 4 objects",
    ),
    (
        "{\"info\":{\"count\":\"826\"},\"results\":[]}",
        "/results",
        "its member /info/count says that there are 826",
    ),
    (
        "{\"incomplete_results\":true,\"items\":[]}",
        "/items",
        "its member /incomplete_results says that it is not complete",
    ),
];

#[test]
fn public_apis_say_that_another_page_follows() {
    for (document, items, expected) in PAGED {
        let why = why(&[], document, items).unwrap_or_default();
        assert!(why.starts_with(expected), "{document}: {why}");
    }
}

#[test]
fn headers_say_that_another_page_follows() {
    for (name, value, expected) in [
        ("link", "<a>; rel=next", "the header Link says that another page follows"),
        ("x-next-page", "2", "the header x-next-page says"),
        ("x-ms-continuation", "abc", "the header x-ms-continuation says"),
        ("x-has-more", "true", "the header x-has-more says"),
        ("x-total-count", "4", "the header x-total-count says that there are 4 objects, and it has 3"),
        ("x-wp-totalpages", "2", "the header x-wp-totalpages says that there are 2 pages"),
        ("x-pages", "2", "the header x-pages says that there are 2 pages"),
        ("content-range", "items 0-2/9", "the header content-range says that there are 9 objects"),
        ("x-pagination", "{\"TotalCount\":9}", "its member /TotalCount says that there are 9 objects"),
        ("x-pagination-total-count", "9", "the header x-pagination-total-count says that there are 9"),
    ] {
        let why = why(&[(name, value)], "[]", "").unwrap_or_default();
        assert!(why.starts_with(expected), "{name}: {why}");
    }
}

#[test]
fn a_whole_list_has_no_sign_of_more() {
    let headers = [
        ("link", "<https://a/l?page=1>; rel=\"first\""),
        ("x-next-page", ""),
        ("x-total", "3"),
        ("x-total-pages", "1"),
        ("x-page", "1"),
        ("x-per-page", "100"),
        ("x-ratelimit-limit", "5000"),
        ("content-range", "0-2/*"),
        ("x-request-count", "812"),
        ("content-length", "900"),
    ];
    assert_eq!(why(&headers, "[]", ""), None);
    for (document, items) in [
        ("{\"data\":[],\"has_more\":false,\"next\":null,\"total\":3}", "/data"),
        ("{\"count\":3,\"next\":\"\",\"previous\":\"http://a\",\"results\":[]}", "/results"),
        // Zendesk has the link on the last page, too; Facebook the cursors; Google a token for later; Square none.
        ("{\"meta\":{\"has_more\":false},\"links\":{\"next\":\"https://a\"},\"users\":[]}", "/users"),
        ("{\"data\":[],\"paging\":{\"cursors\":{\"before\":\"a\",\"after\":\"b\"}}}", "/data"),
        ("{\"items\":[],\"nextSyncToken\":\"abc\",\"@odata.deltaLink\":\"https://a\"}", "/items"),
        (
            "{\"links\":{\"next\":{\"href\":null},\"self\":\"/a\",\"last\":\"/a?page=1\"},\"data\":[]}",
            "/data",
        ),
        ("{\"next_cursor\":0,\"next_cursor_str\":\"0\",\"ids\":[]}", "/ids"),
        ("{\"total\":81.5,\"currency\":\"EUR\",\"lines\":[]}", "/lines"),
        ("{\"page\":1,\"pages\":1,\"limit\":100,\"offset\":\"0\",\"items\":[]}", "/items"),
        ("{\"total_rows\":1000,\"offset\":4,\"rows\":[]}", "/rows"),
        ("{\"next_run\":\"tomorrow\",\"next_id\":12,\"nextSteps\":[1],\"items\":[]}", "/items"),
        ("{\"items\":[],\"summary\":{\"total\":9,\"count\":9},\"status\":\"complete\",\"more\":0}", "/items"),
        (
            "{\"timed_out\":false,\"hits\":{\"total\":{\"value\":3,\"relation\":\"eq\"},\"hits\":[]}}",
            "/hits/hits",
        ),
        ("{\"a\":{\"next\":\"b\",\"total\":7},\"b\":{\"has_more\":true}}", ""),
        ("{\"list\":{\"total\":{\"price\":9},\"next\":{\"price\":1}}}", "/list"),
    ] {
        assert_eq!(why(&[], document, items), None, "{document}");
    }
}

#[test]
fn the_number_of_objects_may_stand_on_an_earlier_page() {
    let signs = |text: &str| {
        let document: &RawValue = serde_json::from_str(text).unwrap();
        Signs::new(&HeaderMap::new(), Some(document), "/d")
    };
    let last = || signs("{\"d\":[]}").after(signs("{\"d\":[],\"total\":9}"));
    let read = |objects, is_numbered| Read { objects, pages: 3, is_numbered };
    assert_eq!((last().why(read(9, false)), last().why(read(10, false))), (None, None));
    assert!(last().why(read(8, true)).unwrap().ends_with("it has 8; is --first-page right?"));
    // A server that names a next page for ever.
    assert_eq!(signs("{\"d\":[],\"next\":\"/a\",\"pages\":9}").why(read(9, true)), None);
}
