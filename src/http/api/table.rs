//! The rows of the table.

use super::document;
use crate::config::access::Verb;
use crate::http::kubernetes;
use crate::http::openapi::params::{
    ActivityQuery, AddQuery, AllSourcesQuery, AllWorkersQuery, CloseQuery, DeleteQuery, DeleteQueueQuery,
    DeltasQuery, ExtendQuery, FindQuery, GroupsQuery, HistoryQuery, IndexQuery, IndexesQuery, ItemQuery,
    ItemsQuery, KeyHistoryQuery, KeyItemQuery, KeyQuery, KnownQuery, ListQuery, Names, ObjectOfQuery,
    ObjectQuery, ParkedQuery, PopQuery, ReflectorsQuery, ReplaceQuery, SeriesQuery, SettingsQuery,
    SourcesQuery, SyncedQuery, UpdateQuery, ViewQuery, WatchQuery, WorkersQuery,
};
use crate::http::operation::{BodyKind, Class, Operation, Permission};
use crate::http::request::call::{Handler, conditional, with_body, with_headers, without_body};
use crate::http::routes::{
    activity, console, consume, everywhere, groups, history, hooks, indexes, items, overview, parked,
    produce, push, queues, series, server, settings, sources, views, watch,
};

/// An operation and its handler.
#[derive(Debug)]
pub(in crate::http) struct Endpoint {
    pub(in crate::http) operation: Operation,
    pub(in crate::http) handler: Handler,
}

impl Endpoint {
    pub(super) fn is_scrape(&self) -> bool {
        self.operation.class == Class::Scrape
    }

    /// Whether the operation serves the console or redirects to it.
    pub(super) fn is_console(&self) -> bool {
        let path = self.operation.path;
        path == "/" || path.starts_with("/console")
    }
}

macro_rules! id {
    (None) => {
        None
    };
    ($id:ident) => {
        Some(stringify!($id))
    };
}

macro_rules! names {
    () => {
        &[]
    };
    ($query:ident) => {
        $query::NAMES
    };
}

macro_rules! is_quick {
    (quick) => {
        true
    };
    (long) => {
        false
    };
}

macro_rules! operations {
    ($($method:ident $path:literal $id:ident $permission:ident $(($verb:ident))? $class:ident $body:ident
        [$($query:ident)?] $length:ident $kind:ident $file:ident::$handler:ident;)*) => {
        /// All operations. `Allow` names the methods of a path in this order.
        pub(in crate::http) static ALL: &[Endpoint] = &[$(Endpoint {
            operation: Operation {
                method: stringify!($method),
                path: $path,
                id: id!($id),
                permission: Permission::$permission $((Verb::$verb))?,
                class: Class::$class,
                body: BodyKind::$body,
                query: names!($($query)?),
                is_quick: is_quick!($length),
            },
            handler: |context, request, query| $kind(context, request, query, $file::$handler),
        }),*];
    };
}

// The columns: method, path, id, permission, in-flight limit, body, query parameters, whether the thread of the connection
// answers a short call, handler.
operations! {
    GET    "/v1/queues"                        list_queues    Somewhere(Read)  Read      Ignored  [ListQuery]       long  without_body queues::list;
    GET    "/v1/queues/{queue}"                get_queue      OnQueue(Read)    Read      Ignored  []                long  without_body queues::get;
    GET    "/v1/queues/{queue}/status"         get_status     OnQueue(Read)    Read      Ignored  []                long  without_body queues::status;
    GET    "/v1/queues/{queue}/series"         get_series     OnQueue(Read)    Read      Ignored  [SeriesQuery]     long  without_body series::of_queue;
    GET    "/v1/series"                        get_all_series Somewhere(Read)  Read      Ignored  [SeriesQuery]     long  without_body series::of_all;
    GET    "/v1/queues/{queue}/settings"       get_settings   OnQueue(Read)    Read      Ignored  []                long  without_body settings::get;
    PUT    "/v1/queues/{queue}"                put_queue      OnQueue(Admin)   Write     Settings [SettingsQuery]   long  conditional  settings::put;
    PATCH  "/v1/queues/{queue}"                patch_queue    OnQueue(Admin)   Write     Patch    [SettingsQuery]   long  conditional  settings::patch;
    POST   "/v1/queues/{queue}/settings/plan"  plan_settings  OnQueue(Admin)   Read      Settings []                long  with_body    settings::plan;
    DELETE "/v1/queues/{queue}"                delete_queue   OnQueue(Admin)   Write     Ignored  [DeleteQueueQuery] long without_body queues::delete;
    POST   "/v1/queues/{queue}/pause"          pause_queue    OnQueue(Admin)   Write     Document []                long  with_body    queues::pause;
    POST   "/v1/queues/{queue}/resume"         resume_queue   OnQueue(Admin)   Write     Document []                long  with_body    queues::resume;
    POST   "/v1/queues/{queue}/close"          close_queue    OnQueue(Admin)   Wait      Empty    [CloseQuery]      long  with_body    queues::close;
    POST   "/v1/queues/{queue}/reopen"         reopen_queue   OnQueue(Admin)   Write     Empty    []                long  with_body    queues::reopen;
    POST   "/v1/queues/{queue}/purge"          purge_queue    OnQueue(Admin)   Write     Empty    []                long  with_body    queues::purge;
    POST   "/v1/queues/{queue}/push/test"      test_push      OnQueue(Admin)   Wait      Empty    []                long  with_body    push::test;
    POST   "/v1/queues/{queue}/add"            add            OnQueue(Produce) Write     Changes  [AddQuery]        quick conditional  produce::add;
    POST   "/v1/queues/{queue}/update"         update         OnQueue(Produce) Write     Changes  [UpdateQuery]     quick conditional  produce::update;
    POST   "/v1/queues/{queue}/delete"         delete         OnQueue(Produce) Write     Changes  [DeleteQuery]     quick conditional  produce::delete;
    POST   "/v1/queues/{queue}/replace"        replace        OnQueue(Produce) List      Objects  [ReplaceQuery]    long  with_body    produce::replace;
    POST   "/v1/queues/{queue}/deltas"         deltas         OnQueue(Produce) Write     Objects  [DeltasQuery]     long  with_body    produce::deltas;
    POST   "/v1/queues/{queue}/resync"         resync         OnQueue(Produce) Write     Empty    []                long  with_body    produce::resync;
    POST   "/v1/queues/{queue}/seed"           seed           OnQueue(Admin)   List      Objects  []                long  with_body    produce::seed;
    POST   "/v1/queues/{queue}/forget"         forget         OnQueue(Consume) Settle    Document []                long  with_body    produce::forget;
    POST   "/v1/queues/{queue}/pop"            pop            OnQueue(Consume) Pop       Document [PopQuery]        quick with_body    consume::pop;
    POST   "/v1/queues/{queue}/settle"         settle         OnQueue(Consume) Settle    Document []                quick with_body    consume::settle;
    POST   "/v1/queues/{queue}/ack"            ack            OnQueue(Consume) Settle    Document []                quick with_body    consume::ack;
    POST   "/v1/queues/{queue}/done"           done           OnQueue(Consume) Settle    Document []                quick with_body    consume::done;
    POST   "/v1/queues/{queue}/nack"           nack           OnQueue(Consume) Settle    Document []                long  with_body    consume::nack;
    POST   "/v1/queues/{queue}/release"        release        OnQueue(Consume) Settle    Document []                long  with_body    consume::release;
    POST   "/v1/queues/{queue}/reject"         reject         OnQueue(Consume) Settle    Document []                long  with_body    consume::reject;
    POST   "/v1/queues/{queue}/extend"         extend         OnQueue(Consume) Settle    Document [ExtendQuery]     long  with_body    consume::extend;
    GET    "/v1/queues/{queue}/parked/errors"  list_parked_errors OnQueue(Read) Read     Ignored  [ParkedQuery]     long  without_body parked::errors;
    POST   "/v1/queues/{queue}/delayed/promote" promote_delayed OnQueue(Admin) Write    Document []                long  with_body    parked::promote;
    POST   "/v1/queues/{queue}/parked/redrive" redrive_parked OnQueue(Admin)   Write     Document []                long  with_body    parked::redrive;
    POST   "/v1/queues/{queue}/parked/discard" discard_parked OnQueue(Admin)   Write     Document []                long  with_body    parked::discard;
    GET    "/v1/queues/{queue}/items"          list_items     OnQueue(Read)    Read      Ignored  [ItemsQuery]      long  without_body items::items;
    GET    "/v1/queues/{queue}/item"           get_item_of    OnQueue(Read)    Read      Ignored  [ItemQuery]       long  without_body items::item_of;
    GET    "/v1/queues/{queue}/items/{*key}"   get_item       OnQueue(Read)    Read      Ignored  [KeyItemQuery]    long  without_body items::item;
    GET    "/v1/queues/{queue}/explain"        explain_key_of OnQueue(Read)    Read      Ignored  [KeyQuery]    long  without_body items::explain_of;
    GET    "/v1/queues/{queue}/explain/{*key}" explain_key    OnQueue(Read)    Read      Ignored  []                long  without_body items::explain;
    GET    "/v1/queues/{queue}/object"         get_object_of  OnQueue(Read)    Read      Ignored  [ObjectOfQuery]   long  without_body views::object;
    GET    "/v1/queues/{queue}/latest"         list_latest    OnQueue(Read)    Read      Ignored  [ViewQuery]       long  without_body views::latest_list;
    GET    "/v1/queues/{queue}/latest/{*key}"  get_latest     OnQueue(Read)    Read      Ignored  [ObjectQuery]     long  without_body views::latest;
    GET    "/v1/queues/{queue}/known"          list_known     OnQueue(Read)    Read      Ignored  [KnownQuery]      long  without_body views::known_list;
    GET    "/v1/queues/{queue}/known/{*key}"   get_known      OnQueue(Read)    Read      Ignored  [ObjectQuery]     long  without_body views::known;
    GET    "/v1/queues/{queue}/indexes"        list_indexes   OnQueue(Read)    Read      Ignored  [IndexesQuery]    long  without_body indexes::list;
    GET    "/v1/queues/{queue}/indexes/{name}" list_index_values OnQueue(Read) Read      Ignored  [IndexQuery]      long  without_body indexes::values;
    GET    "/v1/queues/{queue}/watch"          watch          OnQueue(Read)    Watch     Ignored  [WatchQuery]      quick without_body watch::watch;
    GET    "/v1/queues/{queue}/history"        get_history_of OnQueue(Read)    Read      Ignored  [HistoryQuery]    long  without_body history::history;
    GET    "/v1/queues/{queue}/history/{*key}" get_history    OnQueue(Read)    Read      Ignored  [KeyHistoryQuery] long  without_body history::of_key;
    GET    "/v1/queues/{queue}/sources"        list_sources   OnQueue(Read)    Read      Ignored  [SourcesQuery]    long  without_body sources::sources;
    POST   "/v1/queues/{queue}/sources"        report_source  OnQueue(Produce) Write     Document []                long  with_body    sources::report;
    PATCH  "/v1/queues/{queue}/sources"        patch_sources  OnQueue(Produce) Write     Document []                long  conditional  sources::change_several;
    PATCH  "/v1/queues/{queue}/sources/{source}" patch_source OnQueue(Produce) Write     Document []                long  with_body    sources::change;
    POST   "/v1/queues/{queue}/sources/{source}/seen" seen_source OnQueue(Produce) Write Empty    []                long  with_body    sources::seen;
    POST   "/v1/queues/{queue}/reflectors"     report_reflector OnQueue(Produce) Write  Document []                long  with_body    sources::reflector;
    GET    "/v1/queues/{queue}/workers"        list_workers   OnQueue(Read)    Read      Ignored  [WorkersQuery]    long  without_body sources::workers;
    GET    "/v1/queues/{queue}/groups"         list_groups    OnQueue(Read)    Read      Ignored  [GroupsQuery]     long  without_body groups::groups;
    GET    "/v1/queues/{queue}/synced"         get_synced     OnQueue(Read)    Wait      Ignored  [SyncedQuery]     long  without_body sources::synced;
    POST   "/v1/hooks/{queue}"                 receive_hook   Signature        Hook      Delivery []                long  with_headers hooks::receive;
    GET    "/v1/queues/{queue}/hook/deliveries" list_deliveries OnQueue(Read) Read      Ignored  []                long  without_body hooks::list;
    GET    "/v1/queues/{queue}/hook/deliveries/{number}" get_delivery OnQueue(Read) Read Ignored []                long  without_body hooks::get;
    POST   "/v1/queues/{queue}/hook/deliveries/redeliver" redeliver_deliveries OnQueue(Admin) List Document []      long  with_body    hooks::redeliver;
    POST   "/v1/queues/{queue}/hook/deliveries/discard" discard_deliveries OnQueue(Admin) Write Document []         long  with_body    hooks::discard;
    GET    "/v1/workers"                       list_all_workers Somewhere(Read) Read     Ignored  [AllWorkersQuery] long  without_body everywhere::workers;
    GET    "/v1/activity"                      list_activity  Somewhere(Read)  Read      Ignored  [ActivityQuery]   long  without_body activity::activity;
    GET    "/v1/find"                          find           Somewhere(Read)  Read      Ignored  [FindQuery]       long  without_body everywhere::find;
    GET    "/v1/sources"                       list_all_sources Somewhere(Read) Read     Ignored  [AllSourcesQuery] long  without_body overview::sources;
    GET    "/v1/reflectors"                    list_reflectors Somewhere(Read) Read     Ignored  [ReflectorsQuery] long  without_body overview::reflectors;
    GET    "/v1/info"                          get_info       Token            Read      Ignored  []                long  without_body server::info;
    GET    "/v1/nodes"                         list_nodes     Everywhere(Read) Read      Ignored  []                long  without_body server::nodes;
    GET    "/livez"                            livez          Nothing          Unlimited Ignored  []                long  without_body server::livez;
    GET    "/readyz"                           readyz         Nothing          Unlimited Ignored  []                long  without_body server::readyz;
    GET    "/openapi.json"                     get_openapi    Token            Read      Ignored  []                long  without_body document::openapi_json;
    GET    "/problems/{name}"                  get_problem    Nothing          Read      Ignored  []                long  without_body server::problem;
    GET    "/"                                 None           Nothing          Unlimited Ignored  []                long  without_body console::root;
    GET    "/console"                          None           Nothing          Unlimited Ignored  []                long  without_body console::folder;
    GET    "/console/"                         None           Nothing          Unlimited Ignored  []                long  without_body console::file;
    GET    "/console/{*file}"                  None           Nothing          Unlimited Ignored  []                long  without_body console::file;
    GET    "/version"                          None           Token            Read      Ignored  []                long  without_body kubernetes::version;
    GET    "/api"                              None           Token            Read      Ignored  []                long  without_body kubernetes::legacy;
    GET    "/api/v1"                           None           Token            Read      Ignored  []                long  without_body kubernetes::legacy_resources;
    GET    "/api/v1/namespaces/{namespace}"    None           Token            Read      Ignored  []                long  without_body kubernetes::namespace;
    GET    "/apis"                             None           Token            Read      Ignored  []                long  without_body kubernetes::groups;
    GET    "/apis/{group}"                     None           Token            Read      Ignored  []                long  without_body kubernetes::group;
    GET    "/apis/{group}/{version}"           None           Token            Read      Ignored  []                long  without_body kubernetes::resources;
    GET    "/apis/{group}/{version}/{plural}"  None           OnQueue(Read)    Read      Ignored  []                long  without_body kubernetes::list;
    WATCH  "/apis/{group}/{version}/{plural}"  None           OnQueue(Read)    Watch     Ignored  []                quick without_body kubernetes::watch;
    POST   "/apis/{group}/{version}/{plural}"  None           OnQueue(Produce) Write     Kubernetes []              long  with_headers kubernetes::create;
    GET    "/apis/{group}/{version}/{plural}/{name}" None     OnQueue(Read)    Read      Ignored  []                long  without_body kubernetes::get;
    PUT    "/apis/{group}/{version}/{plural}/{name}" None     OnQueue(Produce) Write     Kubernetes []              long  with_headers kubernetes::replace;
    PATCH  "/apis/{group}/{version}/{plural}/{name}" None     OnQueue(Produce) Write     Kubernetes []              long  with_headers kubernetes::patch;
    DELETE "/apis/{group}/{version}/{plural}/{name}" None     OnQueue(Produce) Write     Kubernetes []              long  with_headers kubernetes::delete;
    GET    "/apis/{group}/{version}/namespaces/{namespace}/{plural}" None OnQueue(Read)    Read  Ignored    []      long  without_body kubernetes::list;
    WATCH  "/apis/{group}/{version}/namespaces/{namespace}/{plural}" None OnQueue(Read)    Watch Ignored    []      quick without_body kubernetes::watch;
    POST   "/apis/{group}/{version}/namespaces/{namespace}/{plural}" None OnQueue(Produce) Write Kubernetes []      long  with_headers kubernetes::create;
    GET    "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}" None OnQueue(Read)    Read  Ignored    [] long without_body kubernetes::get;
    PUT    "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}" None OnQueue(Produce) Write Kubernetes [] long with_headers kubernetes::replace;
    PATCH  "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}" None OnQueue(Produce) Write Kubernetes [] long with_headers kubernetes::patch;
    DELETE "/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}" None OnQueue(Produce) Write Kubernetes [] long with_headers kubernetes::delete;
    GET    "/openapi/v2"                       None           Token            Read      Ignored  []                long  without_body kubernetes::v2;
    GET    "/openapi/v3"                       None           Token            Read      Ignored  []                long  without_body kubernetes::v3;
    GET    "/openapi/v3/apis/{group}/{version}" None          Token            Read      Ignored  []                long  without_body kubernetes::v3_group;
    GET    "/v1/nodes/kubernetes"              None           Token            Read      Ignored  []                long  without_body kubernetes::of_node;
    GET    "/metrics"                          None           Everywhere(Read) Scrape    Ignored  []                long  without_body server::metrics;
}
