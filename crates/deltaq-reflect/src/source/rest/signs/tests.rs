//! Replies of public APIs, with and without another page.

use reqwest::header::{HeaderName, HeaderValue};

use super::*;

fn asked() -> Url {
    Url::parse("https://a/list?page_token=abc&limit=7&count=200").unwrap()
}

/// Why a list of three objects in one page is not the whole list.
fn why(headers: &[(&'static str, &'static str)], document: &str, items: &str) -> Option<String> {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let headers = headers.iter().map(pair).collect();
    let document: &RawValue = serde_json::from_str(document).unwrap();
    Signs::new(&headers, Some(document), items, &asked()).why(Read {
        objects: 3,
        pages: 1,
        is_numbered: false,
        is_alone: true,
    })
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
        "its member /NextContinuationToken",
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
    ("{\"items\":[],\"position\":\"abc\"}", "/items", "its member /position says that another page follows"),
    ("{\"item\":[],\"_embedded\":{},\"position\":\"eyJ=\"}", "/item", "its member /position"),
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
    (
        "{\"content\":[],\"number\":0,\"size\":3,\"first\":true,\"last\":false,\"totalPages\":2}",
        "/content",
        "its member /last says",
    ),
    ("{\"isLastPage\":false,\"values\":[],\"nextPageStart\":25}", "/values", "its member /nextPageStart"),
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
        "its member /hits/total says that there are more than 10000 objects, and it has 3",
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

/// Replies with another page that say so less plainly.
const PAGED_BY_OTHER_SIGNS: &[(&str, &str, &str)] = &[
    // A place in the list alone: Twitch, Square, Reddit, Pinterest, GoCardless, Cloudflare, Cognito, OAI-PMH.
    (
        "{\"data\":[],\"pagination\":{\"cursor\":\"eyJi\"}}",
        "/data",
        "its member /pagination/cursor says that another page follows; --next /pagination/cursor with --next-parameter",
    ),
    ("{\"objects\":[],\"cursor\":\"CAAS\"}", "/objects", "its member /cursor says"),
    (
        "{\"kind\":\"Listing\",\"data\":{\"after\":\"t3_1\",\"before\":null,\"dist\":3,\"children\":[]}}",
        "/data/children",
        "its member /data/after says",
    ),
    ("{\"items\":[],\"bookmark\":\"LT4\"}", "/items", "its member /bookmark says"),
    (
        "{\"payments\":[],\"meta\":{\"cursors\":{\"before\":null,\"after\":\"PM1\"},\"limit\":3}}",
        "/payments",
        "its member /meta/cursors/after says",
    ),
    (
        "{\"result\":[],\"result_info\":{\"cursors\":{\"after\":\"x\"}}}",
        "/result",
        "its member /result_info/cursors",
    ),
    ("{\"Users\":[],\"PaginationToken\":\"abc\"}", "/Users", "its member /PaginationToken"),
    ("{\"records\":[],\"resumptionToken\":\"r1\"}", "/records", "its member /resumptionToken"),
    ("{\"items\":[],\"pageToken\":\"def\"}", "/items", "its member /pageToken"),
    ("{\"items\":[],\"cursor\":{\"after\":\"x\"}}", "/items", "its member /cursor/after"),
    ("{\"items\":[],\"limit\":7,\"cursor\":7}", "/items", "its member /cursor"),
    ("{\"items\":[],\"continue_token\":\"x\"}", "/items", "its member /continue_token"),
    ("{\"items\":[],\"search_after\":[\"a\",1]}", "/items", "its member /search_after"),
    ("{\"items\":[],\"next_max_id\":\"9\"}", "/items", "its member /next_max_id"),
    (
        "{\"items\":[],\"list_info\":{\"has_more_rows\":true}}",
        "/items",
        "its member /list_info/has_more_rows",
    ),
    // Links in arrays: OpenStack, HAL, and relations that are arrays or URIs.
    (
        "{\"servers\":[],\"servers_links\":[{\"rel\":\"next\",\"href\":\"http://a/?marker=1\"}]}",
        "/servers",
        "its member /servers_links says that another page follows; a link in an array",
    ),
    (
        "{\"_links\":{\"next\":[{\"href\":\"/a?page=2\"}]},\"items\":[]}",
        "/items",
        "its member /_links/next says that another page follows; --next /_links/next/0/href leads",
    ),
    ("{\"links\":[{\"rel\":[\"next\"],\"uri\":\"/2\"}],\"items\":[]}", "/items", "its member /links"),
    ("{\"link\":[{\"rel\":\"next\"}],\"items\":[]}", "/items", "its member /link"),
    // Flags in other words, and one that can't be read.
    ("{\"data\":[],\"has_more\":\"Y\"}", "/data", "its member /has_more says that another page follows"),
    ("{\"data\":[],\"hasMore\":\"yes\"}", "/data", "its member /hasMore says"),
    ("{\"data\":[],\"more\":\"1\"}", "/data", "its member /more says"),
    ("{\"data\":[],\"has_next\":1}", "/data", "its member /has_next says"),
    ("{\"data\":[],\"is_last\":0}", "/data", "its member /is_last says"),
    ("{\"data\":[],\"isLastPage\":\"no\"}", "/data", "its member /isLastPage says"),
    ("{\"data\":[],\"done\":false}", "/data", "its member /done says that it is not complete"),
    ("{\"data\":[],\"partial\":1}", "/data", "its member /partial says that it is not complete"),
    (
        "{\"data\":[],\"has_more\":\"perhaps\"}",
        "/data",
        "its member /has_more can't be read, and may say that another page follows; --next",
    ),
    ("{\"data\":[],\"has_more\":{\"after\":7}}", "/data", "its member /has_more can't be read"),
    // Numbers of any objects, and in other forms.
    (
        "{\"transactions\":[],\"total_transactions\":250}",
        "/transactions",
        "its member /total_transactions says that there are 250 objects, and it has 3",
    ),
    (
        "{\"data\":[],\"transactions_count\":250}",
        "/data",
        "its member /transactions_count says that there are 250",
    ),
    ("{\"entries\":[],\"numEntries\":250}", "/entries", "its member /numEntries says that there are 250"),
    ("{\"users\":[],\"total\":\"1,234\"}", "/users", "its member /total says that there are 1234"),
    ("{\"users\":[],\"total\":250.0}", "/users", "its member /total says that there are 250"),
    (
        "{\"users\":[],\"total\":\"10000+\"}",
        "/users",
        "its member /total says that there are more than 10000",
    ),
    (
        "{\"users\":[],\"total_count\":\"about 9\"}",
        "/users",
        "its member /total_count can't be read, and may say that another page follows",
    ),
    ("{\"page_count\":4,\"data\":[]}", "/data", "its member /page_count says that there are 4 pages"),
    ("{\"@odata.count\":9,\"value\":[]}", "/value", "its member /@odata.count says that there are 9"),
    ("{\"users\":[],\"totals\":{\"users\":8}}", "/users", "its member /totals says that there are 8"),
    ("{\"users\":[],\"total\":{\"count\":8}}", "/users", "its member /total says that there are 8"),
    ("{\"data\":[],\"recordsTotal\":8}", "/data", "its member /recordsTotal says that there are 8"),
    // What failed beside what was found: GraphQL, Elasticsearch.
    (
        "{\"data\":{\"all\":[]},\"errors\":[{\"message\":\"timeout\",\"path\":[\"all\",4]}]}",
        "/data/all",
        "its member /errors says that it is not complete",
    ),
    (
        "{\"_shards\":{\"total\":5,\"failed\":1},\"hits\":{\"total\":3,\"hits\":[]}}",
        "/hits/hits",
        "its member /_shards says that it is not complete",
    ),
    // The World Bank has the list beside the page in an array.
    ("[{\"page\":1,\"pages\":6,\"total\":\"300\"},[]]", "/1", "its member /0/total says that there are 300"),
    // A page that has a name, and one that has the id of the request.
    ("{\"request_id\":\"r1\",\"code\":0,\"total\":9,\"items\":[]}", "/items", "its member /total says"),
    ("{\"id\":\"r1\",\"page\":1,\"total\":9,\"items\":[]}", "/items", "its member /total says"),
];

#[test]
fn public_apis_say_that_another_page_follows() {
    for (document, items, expected) in PAGED.iter().chain(PAGED_BY_OTHER_SIGNS) {
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
        ("x-total-transactions", "9", "the header x-total-transactions says that there are 9"),
        ("x-total-count", "4, 4", "the header x-total-count says that there are 4 objects"),
        ("x-total-count", "about 4", "the header x-total-count can't be read"),
        ("content-range", "items 0-2/1,234", "the header content-range says that there are 1234"),
        ("content-range", "0-2/9", "the header content-range says that there are 9 objects"),
        ("content-range", "items 0-2/*", "the header content-range is that of a range"),
        ("content-range", "0-2/*", "the header content-range is that of a range"),
        ("content-range", "id 01..03; max=3", "the header content-range is that of a range"),
        ("content-range", "items 0-2", "the header content-range is that of a range"),
        ("content-range", "items */9", "the header content-range says that there are 9 objects"),
        ("content-range", "bytes 0-99/300", "the header content-range says that it is not complete"),
        ("x-content-range", "items 0-2/*", "the header x-content-range is that of a range"),
        ("accept-range", "order 3", "the header accept-range is that of a range"),
        ("accept-ranges", "items 3", "the header accept-ranges is that of a range"),
        ("next-range", "id ]03..; max=3", "the header next-range says that another page follows"),
        ("x-cursor", "abc", "the header x-cursor says"),
        ("x-has-more", "Y", "the header x-has-more says"),
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
        ("accept-ranges", "items"),
    ];
    assert_eq!(why(&headers, "[]", ""), None);
    for header in [
        ("content-range", "items 0-2/3"),
        ("content-range", "bytes 0-899/900"),
        ("content-range", "items */*"),
        ("content-range", "items */3"),
        ("accept-ranges", "bytes"),
        ("accept-ranges", "none"),
        ("accept-ranges", "bytes 0"),
        ("accept-range", "order 4"),
    ] {
        assert_eq!(why(&[header], "[]", ""), None, "{header:?}");
    }
    assert_eq!(why(&[("content-range", "0-2/*")], "{\"d\":[],\"total\":3}", "/d"), None);
    assert_eq!(why(&[("content-range", "0-2/*")], "{\"d\":[],\"has_more\":false}", "/d"), None);
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
        ("{\"position\":4,\"items\":[]}", "/items"),
        ("{\"position\":\"\",\"items\":[]}", "/items"),
        ("{\"position\":\"left\",\"price\":4,\"items\":[]}", "/items"),
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
        // Twitter, Slack and others end a list with such a cursor.
        ("{\"next_cursor\":-1,\"users\":[]}", "/users"),
        ("{\"cursor\":\"\",\"response_metadata\":{\"next_cursor\":\"\"},\"members\":[]}", "/members"),
        ("{\"pagination\":{},\"after\":null,\"cursor\":0,\"data\":[]}", "/data"),
        // Another member says that no page follows; the place is that of an object or of this page.
        ("{\"next\":null,\"cursors\":{\"after\":\"0oK\"},\"items\":[]}", "/items"),
        ("{\"cursor\":\"ZtkX\",\"has_more\":\"N\",\"entries\":[]}", "/entries"),
        ("{\"d\":{\"pageInfo\":{\"startCursor\":\"a\",\"endCursor\":\"b\"},\"nodes\":[]}}", "/d/nodes"),
        ("{\"count\":200,\"offset\":0,\"items\":[]}", "/items"),
        ("{\"page_token\":\"abc\",\"prev_cursor\":\"x\",\"items\":[]}", "/items"),
        (
            "{\"links\":[{\"rel\":\"next\",\"href\":null},{\"rel\":\"self\",\"href\":\"/a\"}],\"items\":[]}",
            "/items",
        ),
        // The size of a page beside the number of all objects: LinkedIn.
        ("{\"elements\":[],\"paging\":{\"start\":0,\"count\":10,\"total\":3}}", "/elements"),
        ("{\"count\":100,\"start\":0,\"total\":3,\"items\":[]}", "/items"),
        ("{\"total_users\":9,\"total_count\":3,\"data\":[]}", "/data"),
        ("{\"draw\":1,\"recordsTotal\":9,\"recordsFiltered\":3,\"data\":[]}", "/data"),
        ("{\"Items\":[],\"Count\":3,\"ScannedCount\":9}", "/Items"),
        (
            "{\"has_more\":\"\",\"next\":[],\"links\":[],\"count\":\"many\",\"total\":-1,\"items\":[]}",
            "/items",
        ),
        ("{\"errors\":[],\"total_count\":\"-1\",\"last_page\":\"https://a?page=1\",\"items\":[]}", "/items"),
        ("{\"has_more\":false,\"total_count\":\"about 9\",\"items\":[]}", "/items"),
        ("{\"_shards\":{\"total\":5,\"failed\":0},\"hits\":{\"total\":3,\"hits\":[]}}", "/hits/hits"),
        // The source's own data.
        ("{\"id\":\"INV-7\",\"total\":81,\"currency\":\"EUR\",\"lines\":[]}", "/lines"),
        ("{\"invoice_number\":7,\"total\":81,\"vat\":13,\"lines\":[]}", "/lines"),
        ("{\"order\":{\"orderId\":7,\"total\":81,\"customer\":\"a\",\"lines\":[]}}", "/order/lines"),
        ("{\"author\":\"Melville\",\"pages\":635,\"chapters\":[]}", "/chapters"),
        (
            "{\"name\":\"Sprint 7\",\"assignee\":\"a\",\"complete\":false,\"done\":false,\"tasks\":[]}",
            "/tasks",
        ),
        ("{\"data\":{\"sku\":\"a\",\"count\":12,\"parts\":[]}}", "/data/parts"),
        // Numbers of something else, and messages of the source's own data.
        (
            "{\"items\":[],\"word_count\":1200,\"view_count\":9,\"followers_count\":7,\"row_count\":5}",
            "/items",
        ),
        ("{\"warnings\":[],\"errors\":[{\"line\":7}]}", "/warnings"),
        ("{\"total_amount\":81,\"discount\":10,\"account\":4711,\"error_count\":5,\"items\":[]}", "/items"),
    ] {
        assert_eq!(why(&[], document, items), None, "{document}");
    }
}

/// A page may be that of a project, an account or a tenant.
#[test]
fn a_page_with_an_id_or_a_name_is_a_page() {
    for (document, items) in [
        ("{\"projectId\":12,\"total\":250,\"issues\":[]}", "/issues"),
        ("{\"id\":12,\"name\":\"board\",\"total\":250,\"issues\":[]}", "/issues"),
        ("{\"accountId\":1,\"count\":250,\"items\":[]}", "/items"),
        ("{\"tenantName\":\"acme\",\"more\":true,\"items\":[]}", "/items"),
        ("{\"currency\":\"EUR\",\"truncated\":true,\"prices\":[]}", "/prices"),
        ("{\"title\":\"Prices\",\"pages\":3,\"items\":[]}", "/items"),
    ] {
        assert!(why(&[], document, items).is_some(), "{document}");
    }
}

#[test]
fn the_number_of_objects_may_stand_on_an_earlier_page() {
    let signs = |text: &str| {
        let document: &RawValue = serde_json::from_str(text).unwrap();
        Signs::new(&HeaderMap::new(), Some(document), "/d", &asked())
    };
    let last = || signs("{\"d\":[]}").after(signs("{\"d\":[],\"total\":9}"));
    let read = |objects, is_numbered| Read { objects, pages: 3, is_numbered, is_alone: false };
    assert_eq!((last().why(read(9, false)), last().why(read(10, false))), (None, None));
    assert!(last().why(read(8, true)).unwrap().ends_with("it has 8; is --first-page right?"));
    let torn = |one: &str, two: &str| signs("{\"d\":[]}").after(signs(two).after(signs(one))).is_torn();
    let total = "{\"d\":[],\"total\":9}";
    assert!(torn(total, "{\"d\":[],\"total\":8}") && !torn(total, total) && !torn(total, "{\"d\":[]}"));
}

/// What an earlier page has said to be missing stays missing.
#[test]
fn a_page_that_is_not_complete_is_not_forgotten() {
    let signs = |text: &str| {
        let document: &RawValue = serde_json::from_str(text).unwrap();
        Signs::new(&HeaderMap::new(), Some(document), "/d", &asked())
    };
    for second in [
        "{\"d\":[],\"incomplete_results\":true}",
        "{\"d\":[],\"errors\":[{\"message\":\"x\"}]}",
        "{\"d\":[],\"partial\":true,\"is_last\":false}",
        "{\"d\":[],\"success\":false}",
    ] {
        let last = signs("{\"d\":[],\"has_more\":false}").after(signs(second).after(Signs::default()));
        let why = last.why(Read { objects: 9, pages: 3, is_numbered: true, is_alone: false });
        assert!(why.is_some_and(|why| why.ends_with("says that it is not complete")), "{second}");
    }
}

#[test]
fn numbered_pages_do_not_end_where_a_page_says_that_another_follows() {
    let why = |text: &str| {
        let document: &RawValue = serde_json::from_str(text).unwrap();
        let signs = Signs::new(&HeaderMap::new(), Some(document), "/d", &asked());
        signs.why(Read { objects: 20, pages: 2, is_numbered: true, is_alone: false })
    };
    for more in [
        "\"has_more\":true",
        "\"next_page\":4",
        "\"next\":\"/?page=4\"",
        "\"total_pages\":3",
        "\"remaining_count\":1",
    ] {
        assert!(why(&format!("{{\"d\":[],{more}}}")).is_some(), "{more}");
    }
    for end in ["\"has_more\":false", "\"next_page\":null", "\"total_pages\":2", "\"cursor\":\"x\""] {
        assert_eq!(why(&format!("{{\"d\":[],{end}}}")), None, "{end}");
    }
}

/// Replies that say in other words that the list is not complete, or that the request has failed.
const SAID_IN_PARTS: &[&str] = &[
    "{\"incompleteSearch\":true,\"d\":[]}",
    "{\"responseHeader\":{\"partialResults\":true},\"d\":[]}",
    "{\"terminated_early\":true,\"d\":[]}",
    "{\"properties\":{\"exceededTransferLimit\":true},\"d\":[]}",
    "{\"resultTruncated\":\"true\",\"d\":[]}",
    "{\"results_truncated\":true,\"d\":[]}",
    "{\"limit_exceeded\":true,\"d\":[]}",
    "{\"limitReached\":true,\"d\":[]}",
    "{\"jobComplete\":false,\"d\":[]}",
    "{\"success\":false,\"d\":[]}",
    "{\"ok\":false,\"d\":[]}",
    "{\"error\":\"backend timeout\",\"d\":[]}",
    "{\"error\":{\"code\":500},\"d\":[]}",
    "{\"status\":\"error\",\"d\":[]}",
    "{\"code\":429,\"msg\":\"slow\",\"d\":[]}",
    "{\"errors\":[{\"title\":\"Not Found\"}],\"d\":[]}",
    "{\"errors\":[\"shard 3 failed\"],\"d\":[]}",
    "{\"errorMessages\":[\"no index\"],\"d\":[]}",
    "{\"unreachable\":[\"eu\"],\"d\":[]}",
    "{\"missingZones\":[\"eu-1\"],\"d\":[]}",
    "{\"failed_shards\":2,\"d\":[]}",
    "{\"_clusters\":{\"total\":2,\"skipped\":1},\"d\":[]}",
    "{\"warnings\":[\"partial response\"],\"d\":[]}",
    "{\"notices\":[{\"type\":\"result set truncated due to load\"}],\"d\":[]}",
    "{\"is_end\":false,\"d\":[]}",
    "{\"end\":false,\"d\":[]}",
    "{\"endReached\":false,\"d\":[]}",
    "{\"moreComing\":true,\"d\":[]}",
    "{\"canLoadMore\":true,\"d\":[]}",
    "{\"have_more\":true,\"d\":[]}",
    "{\"remaining\":150,\"d\":[]}",
    "{\"next_batch\":\"abc\",\"d\":[]}",
    "{\"nextIndex\":26,\"d\":[]}",
    "{\"next_from\":\"26/abc\",\"d\":[]}",
    "{\"nextCursorMark\":\"AoE\",\"d\":[]}",
    "{\"nextPageNo\":2,\"d\":[]}",
    "{\"LastEvaluatedTableName\":\"t\",\"d\":[]}",
    "{\"continuationMarker\":\"t\",\"d\":[]}",
    "{\"scroll_token\":\"t\",\"d\":[]}",
    "{\"total\":{\"value\":3,\"relation\":\"gte\"},\"d\":[]}",
    "{\"total\":\"3+\",\"d\":[]}",
];

#[test]
fn the_parts_of_a_name_say_that_something_is_missing() {
    for document in SAID_IN_PARTS {
        assert!(why(&[], document, "/d").is_some(), "{document}");
    }
    for (name, value) in [
        ("x-nomad-nexttoken", "abc"),
        ("opc-next-page", "abc"),
        ("opc-total-items", "300"),
        ("x-amz-next-token", "abc"),
        ("x-acme-next-cursor", "abc"),
        ("next", "/x?page=2"),
        ("x-next-offset", "26"),
        ("pagination", "{\"page\":1,\"total\":30,\"pages\":2}"),
        ("x-records-total", "30"),
        ("x-truncated", "true"),
        ("warning", "299 - \"partial results\""),
    ] {
        assert!(why(&[(name, value)], "[]", "").is_some(), "{name}");
    }
    for document in [
        "{\"success\":true,\"ok\":true,\"error\":null,\"errors\":[],\"errorMessages\":[],\"code\":0,\"d\":[]}",
        "{\"status\":\"ok\",\"error\":false,\"error_code\":\"0\",\"d\":[]}",
        "{\"code\":200,\"message\":\"success\",\"error\":\"\",\"d\":[]}",
        "{\"remaining\":4999,\"limit\":5000,\"remaining_count\":0,\"d\":[]}",
        "{\"is_incomplete\":false,\"truncated\":false,\"jobComplete\":true,\"nomore\":true,\"d\":[]}",
        "{\"_shards\":{\"skipped\":3,\"failed\":0},\"warnings\":[\"deprecated\"],\"unreachable\":[],\"d\":[]}",
        "{\"next_batch\":null,\"nextIndex\":-1,\"is_end\":true,\"d\":[]}",
        "{\"total\":{\"value\":3,\"relation\":\"eq\"},\"d\":[]}",
    ] {
        assert_eq!(why(&[], document, "/d"), None, "{document}");
    }
    for header in [
        ("x-ratelimit-remaining", "59"),
        ("x-remaining", "59"),
        ("x-nextjs-cache", "HIT"),
        ("warning", "299 - \"deprecated\""),
    ] {
        assert_eq!(why(&[header], "[]", ""), None, "{header:?}");
    }
}
