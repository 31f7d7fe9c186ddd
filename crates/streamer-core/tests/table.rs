//! The table of cases, `testdata/match/`, as far as it is about what this crate decides.
//!
//! A case is left to the host, and counted, if it needs the `cel` of a subscription, `transitions`, `soft_delete`, or an event
//! with `unknown` members. Everything else must come out as the table says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use streamer_core::engine::{Addition, Engine, Event, Options, Scratch, WriteMode};
use streamer_core::error::{EventError, Ignored, SubscriptionErrorKind, Unread};
use streamer_core::flatten::{Flattener, GivenParts, PathTrie, Validation};
use streamer_core::json::{self, ParseOptions, Tree};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;
use streamer_core::naive;
use streamer_core::subscriptions::{Subscription, normal_form};
use streamer_core::value::Scalar;

struct Case {
    file: String,
    name: String,
    table: toml::Table,
}

impl Case {
    fn text(&self, member: &str) -> Option<&str> {
        self.table.get(member).and_then(toml::Value::as_str)
    }

    fn engine(&self, member: &str) -> Option<&toml::Value> {
        self.table.get("engine").and_then(|engine| engine.get(member))
    }

    fn limits(&self) -> Limits {
        let number =
            |member, default| self.engine(member).and_then(toml::Value::as_integer).map_or(default, |value| value as usize);
        let limits = Limits::default();
        Limits {
            max_depth: number("max_depth", limits.max_depth),
            max_event_bytes: number("max_event_bytes", limits.max_event_bytes),
            max_subscription_bytes: number("max_subscription_bytes", limits.max_subscription_bytes),
            max_conditions: number("max_conditions", limits.max_conditions),
            max_alternatives: number("max_alternatives", limits.max_alternatives),
            max_pattern_states: number("max_pattern_states", limits.max_pattern_states),
            max_regexp_size: number("max_regexp_size", limits.max_regexp_size),
            max_conjunctions: number("max_conjunctions", limits.max_conjunctions),
            max_cel_bytes: number("max_cel_bytes", limits.max_cel_bytes),
            max_cel_depth: number("max_cel_depth", limits.max_cel_depth),
            ..limits
        }
    }

    fn default_tenant(&self) -> Option<&str> {
        match self.engine("default_tenant") {
            Some(toml::Value::Boolean(false)) => None,
            Some(toml::Value::String(name)) => Some(name),
            _ => Some("default"),
        }
    }

    fn subscriptions(&self) -> Vec<String> {
        match (self.text("subscription"), self.table.get("subscriptions").and_then(toml::Value::as_array)) {
            (Some(one), _) => vec![with_id(one)],
            (None, Some(several)) => several.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect(),
            (None, None) => Vec::new(),
        }
    }

    fn event(&self) -> Option<Vec<u8>> {
        match (self.text("event"), self.text("event_hex")) {
            (Some(event), _) => Some(event.as_bytes().to_vec()),
            (None, Some(digits)) => {
                let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                Some(digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect())
            }
            (None, None) => None,
        }
    }

    fn validations(&self) -> &'static [Validation] {
        match self.text("validation") {
            Some("full") => &[Validation::Full],
            Some("lazy") => &[Validation::Lazy],
            _ => &[Validation::Full, Validation::Lazy],
        }
    }
}

/// As the reference's runner: a subscription without an id gets one as its first member.
fn with_id(text: &str) -> String {
    match json::parse::<Tree>(text.as_bytes(), ParseOptions::default()) {
        Ok(Tree::Object(members)) if !members.iter().any(|(name, _)| &**name == "id") => {
            let rest = text.trim_start().strip_prefix('{').unwrap();
            format!("{{\"id\":\"s\"{}{rest}", if members.is_empty() { "" } else { "," })
        }
        _ => text.to_owned(),
    }
}

/// What `EventLayout.to_dict` would give.
fn layout(text: Option<&str>) -> EventLayout {
    let change = json!({"id": "/id", "tenant": "/tenant", "collection": "/collection", "type": "/type", "ts": "/ts",
        "topic": "/topic", "data": "/data", "before": "/before", "unknown": "/unknown", "type_map": null, "ts_format": "ms",
        "no_change": "match"});
    let preset = |name: &str| -> Json {
        let mut layout = change.clone();
        let changes = match name {
            "change" => json!({}),
            "debezium" => json!({"id": null, "tenant": null, "topic": null, "unknown": null,
                "collection": ["/payload/source/table", "/payload/source/collection", "/source/table", "/source/collection"],
                "type": ["/payload/op", "/op"], "ts": ["/payload/source/ts_ms", "/source/ts_ms", "/payload/ts_ms", "/ts_ms"],
                "data": ["/payload/after", "/after"], "before": ["/payload/before", "/before"],
                "type_map": {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "ignore", "m": "ignore"},
                "no_change": "ignore", "before_holds": "partial",
                "unknown_value": ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
                    "b68a35a7-17ad-35b3-af2a-ae46edb4545a"], "encoded": "json"}),
            "maxwell" => json!({"id": null, "tenant": null, "collection": "/table", "topic": null, "before": "/old",
                "unknown": null, "ts_format": "s", "before_holds": "changed",
                "type_map": {"insert": "insert", "bootstrap-insert": "insert", "update": "update", "delete": "delete"}}),
            "supabase" => json!({"id": null, "tenant": null, "collection": "{/schema}.{/table}", "ts": null, "topic": null,
                "data": "/record", "before": "/old_record", "unknown": null, "before_holds": "partial",
                "type_map": {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "TRUNCATE": "ignore"}}),
            "dms" => json!({"id": null, "tenant": null, "collection": "{/metadata/schema-name}.{/metadata/table-name}",
                "type": "/metadata/operation", "ts": "/metadata/timestamp", "topic": null, "before": "/before-image",
                "unknown": null, "ts_format": "rfc3339", "before_holds": "partial",
                "type_map": {"load": "insert", "insert": "insert", "update": "update", "delete": "delete",
                    "create-table": "ignore"}}),
            "cloudevents" => json!({"tenant": null, "collection": "/source", "type": null, "ts": "/time", "topic": "/type",
                "before": null, "unknown": null, "ts_format": "rfc3339"}),
            "eventbridge" => json!({"tenant": null, "collection": "/source", "type": null, "ts": "/time",
                "topic": "/detail-type", "data": "/detail", "before": null, "unknown": null, "ts_format": "rfc3339"}),
            "document" => json!({"id": null, "tenant": null, "collection": null, "type": null, "ts": null, "topic": null,
                "data": "", "before": null, "unknown": null}),
            other => panic!("no layout {other}"),
        };
        layout.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        layout
    };
    let shown = match text {
        None => preset("change"),
        Some(text) if text.trim_start().starts_with('{') => {
            let mut given: Map<String, Json> = serde_json::from_str(text).unwrap();
            let base = given.remove("preset").map_or("change".into(), |name| name.as_str().unwrap().to_owned());
            let mut shown = preset(&base);
            shown.as_object_mut().unwrap().extend(given);
            shown
        }
        Some(name) => preset(name.trim()),
    };
    EventLayout::from_json(shown.to_string().as_bytes()).unwrap()
}

fn cases() -> Vec<Case> {
    fn toml_files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                toml_files(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/match");
    let mut files = Vec::new();
    toml_files(&root, &mut files);
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let file = path.strip_prefix(&root).unwrap().display().to_string();
        let table: toml::Table =
            std::fs::read_to_string(&path).unwrap().parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        for case in table.get("case").and_then(toml::Value::as_array).into_iter().flatten() {
            let table = case.as_table().unwrap().clone();
            let name = table["name"].as_str().unwrap().to_owned();
            cases.push(Case { file: file.clone(), name, table });
        }
    }
    cases
}

/// Why a case is the host's; `None`: it is run here.
fn left_to_host(case: &Case, subscriptions: &[String]) -> Option<&'static str> {
    if case.engine("soft_delete").is_some() {
        return Some("soft_delete");
    }
    let trees = subscriptions.iter().filter_map(|text| json::parse::<Tree>(text.as_bytes(), ParseOptions::default()).ok());
    let members: Vec<(Box<str>, Tree)> =
        trees.filter_map(|tree| if let Tree::Object(members) = tree { Some(members) } else { None }).flatten().collect();
    let is = |name: &str, value: Option<&Tree>| members.iter().any(|(n, v)| &**n == name && value.is_none_or(|value| v == value));
    let error = case.table.get("subscription_error");
    let is_cel_error = error.and_then(|error| error.get("type")).and_then(toml::Value::as_str) == Some("CelError");
    if is_cel_error || (error.is_none() && is("cel", None)) {
        return Some("cel");
    }
    if error.is_none() && is("transitions", Some(&Tree::Scalar(Scalar::Bool(true)))) {
        return Some("transitions");
    }
    let type_ = error.and_then(|error| error.get("type")).and_then(toml::Value::as_str);
    if type_ == Some("DuplicateSubscriptionError") || type_ == Some("BulkSubscriptionError") {
        return Some("registry");
    }
    None
}

/// Run a case; what came out that should not, or why it is the host's.
fn run(case: &Case) -> Result<Option<&'static str>, String> {
    let texts = case.subscriptions();
    if let Some(reason) = left_to_host(case, &texts) {
        return Ok(Some(reason));
    }
    let limits = case.limits();
    let parsed: Vec<_> = texts.iter().map(|text| Subscription::parse(text.as_bytes(), case.default_tenant(), &limits)).collect();
    if let Some(expected) = case.table.get("subscription_error") {
        let error = match parsed.into_iter().last() {
            Some(Err(error)) => error,
            _ => return Err("accepted".into()),
        };
        let kind = match error.kind {
            SubscriptionErrorKind::Subscription => "SubscriptionError",
            SubscriptionErrorKind::Pattern => "PatternError",
            SubscriptionErrorKind::Cel => "CelError",
            SubscriptionErrorKind::Duplicate => "DuplicateSubscriptionError",
        };
        let text = |member: &str| expected.get(member).and_then(toml::Value::as_str);
        let wrong = text("type").is_some_and(|wanted| wanted != kind)
            || text("place").is_some_and(|wanted| wanted != error.place)
            || text("contains").is_some_and(|wanted| !error.to_string().contains(wanted));
        return if wrong { Err(format!("{kind} at {:?}: {error}", error.place)) } else { Ok(None) };
    }
    let subscriptions = parsed.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| format!("refused: {error}"))?;
    let layout = Arc::new(layout(case.text("layout")));
    let mut trie = PathTrie::builder(Arc::clone(&layout));
    for clause in subscriptions.iter().flat_map(|s| normal_form(s, &limits).conjunctions).flat_map(|c| c.clauses) {
        trie.want(&clause.path, clause.mode);
    }
    let trie = trie.build();
    let event = case.event().unwrap_or_default();
    let given =
        GivenParts { tenant: case.text("tenant"), collection: case.text("collection"), default_tenant: case.default_tenant() };
    let mut flattener = Flattener::new();
    for validation in case.validations() {
        let flat = flattener.flatten(&trie, &event, *validation, &given, &limits);
        if let Some(expected) = case.table.get("event_error") {
            let error = match flat {
                Err(Unread::Bad(error)) => error,
                Err(Unread::Ignored(reason)) => return Err(format!("ignored under {validation:?}: {}", reason.as_str())),
                Ok(_) => return Err(format!("accepted under {validation:?}")),
            };
            if !as_expected(&error, expected) {
                return Err(format!("under {validation:?}: {error} (place {:?})", error.place));
            }
            continue;
        }
        if let Some(expected) = case.text("ignored") {
            if !matches!(flat, Err(Unread::Ignored(reason)) if reason.as_str() == expected) {
                return Err(format!("under {validation:?}: not ignored as {expected:?}: {:?}", flat.err()));
            }
            let found = by_engine(&subscriptions, &layout, *validation, case, &limits, &event)?;
            if !found.is_empty() {
                return Err(format!("under {validation:?}: the engine matched {found:?}"));
            }
            continue;
        }
        let flat = flat.map_err(|error| format!("refused under {validation:?}: {error}"))?;
        let parts = *flat.parts();
        if parts.has_unknown {
            return Ok(Some("unknown"));
        }
        let read = naive::NaiveEvent::read(&event, &layout, &limits).map_err(|error| format!("naively refused: {error}"))?;
        let mut found: Vec<&str> = subscriptions
            .iter()
            .filter(|s| &*s.tenant == "*" || &*s.tenant == parts.tenant)
            .filter(|s| s.collection.as_deref().is_none_or(|name| parts.collection == Some(name)))
            .filter(|s| naive::wants(s, &read))
            .map(|s| &*s.id)
            .collect();
        found.sort_unstable();
        let mut expected: Vec<&str> = match case.text("expect") {
            Some("match") => vec![&*subscriptions[0].id],
            Some(_) => Vec::new(),
            None => case.table["expect_ids"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect(),
        };
        expected.sort_unstable();
        if found != expected {
            return Err(format!("under {validation:?}: matched {found:?}"));
        }
        let indexed = by_engine(&subscriptions, &layout, *validation, case, &limits, &event)?;
        if indexed != expected {
            return Err(format!("under {validation:?}: the engine matched {indexed:?}"));
        }
    }
    Ok(None)
}

/// The ids that the engine finds: once from the plain list of a small partition, once merged and indexed.
fn by_engine(
    subscriptions: &[Subscription],
    layout: &Arc<EventLayout>,
    validation: Validation,
    case: &Case,
    limits: &Limits,
    event: &[u8],
) -> Result<Vec<String>, String> {
    let engine = Engine::new(Options {
        layout: Arc::clone(layout),
        default_tenant: case.default_tenant().map(Box::from),
        validation,
        limits: limits.clone(),
        allow_unindexed: case.engine("allow_unindexed").and_then(toml::Value::as_bool).unwrap_or(true),
        background: false,
        ..Options::default()
    });
    let additions = subscriptions.iter().map(|subscription| {
        Ok(Addition {
            id: subscription.id.clone(),
            gateway_id: subscription.gateway_id.clone(),
            tenant: subscription.tenant.clone(),
            collection: subscription.collection.clone(),
            form: normal_form(subscription, limits),
            flags: 0,
            program: None,
            external_cel: false,
            same_as: None,
            conditions: None,
            text: Box::default(),
            host: None,
        })
    });
    engine.write(additions.collect(), WriteMode::Add, false).map_err(|errors| format!("the engine refused: {errors:?}"))?;
    let mut scratch = Scratch::default();
    let mut find = || -> Result<Vec<String>, String> {
        let matched = engine
            .match_event(Event::new(event, case.text("tenant"), case.text("collection")), &mut scratch)
            .map_err(|error| format!("the engine refused the event: {error}"))?;
        if matched.ignored.map(Ignored::as_str) != case.text("ignored") {
            return Err(format!("the engine ignored the event: {:?}", matched.ignored));
        }
        let mut ids: Vec<String> = matched.certain.iter().map(|slot| engine.record(*slot).unwrap().id.to_string()).collect();
        ids.sort_unstable();
        Ok(ids)
    };
    let plain = find()?;
    engine.merge();
    let merged = find()?;
    if plain == merged { Ok(merged) } else { Err(format!("the engine matched {plain:?}, and merged {merged:?}")) }
}

fn as_expected(error: &EventError, expected: &toml::Value) -> bool {
    let text = |member: &str| expected.get(member).and_then(toml::Value::as_str);
    let offset = expected.get("offset").and_then(toml::Value::as_integer).map(|offset| offset as usize);
    text("code") == Some(error.code.as_str())
        && (offset.is_none() || error.offset == offset)
        && text("place").is_none_or(|place| error.place.as_deref() == Some(place))
}

#[test]
fn every_case_of_the_table_comes_out_as_it_says() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in cases() {
        match run(&case) {
            Ok(reason) => *counts.entry(reason.unwrap_or("run")).or_default() += 1,
            Err(what) => wrong.push(format!("{}: {}: {what}", case.file, case.name)),
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} of {:?}:\n{}", wrong.len(), counts, wrong.join("\n"));
    assert!(counts["run"] > 900, "{counts:?}");
}
