//! Read a subscription from its JSON text (semantics.md section 2).

use super::dialect::Dialect;
use super::filters::FilterPlace;
use super::groups::{FilterNode, NodeMembers};
use super::operators::Filter;
use super::patterns::{self, Pattern};
use super::topics::{TopicDialect, TopicPattern};
use super::wording::{is_identifier, quote, unknown_name};
use crate::error::SubscriptionError;
use crate::json::{self, ParseOptions, Tree};
use crate::layout::EventType;
use crate::limits::{Limits, Size};
use crate::value::Scalar;

/// The behaviour if an event does not carry enough to decide (semantics.md section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Report the match as not certain.
    #[default]
    Deliver,
    /// Skip the match.
    Skip,
}

/// The evaluator of the CEL part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CelEvaluator {
    /// This core.
    Native,
    /// The host.
    Portable,
}

/// A subscription that was checked, with its parts parsed; its `cel` is for the host to check.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Unique within an engine.
    pub id: Box<str>,
    /// The receiver of the match.
    pub gateway_id: Option<Box<str>>,
    /// A name, or `*` for every tenant.
    pub tenant: Box<str>,
    /// A name, or `None` for every collection.
    pub collection: Option<Box<str>>,
    /// `None` for all.
    pub types: Option<Vec<EventType>>,
    /// Conditions on fields of the document.
    pub filters: Vec<Filter>,
    /// The groups among its filters.
    pub groups: Vec<FilterNode>,
    /// A pattern.
    pub pattern: Option<Pattern>,
    /// A topic pattern.
    pub topic: Option<TopicPattern>,
    /// A CEL expression as text.
    pub cel: Option<Box<str>>,
    /// Deliver or skip.
    pub on_unknown: OnUnknown,
    /// Also report that a document stops matching.
    pub transitions: bool,
    /// Whether it carries labels, which are for the host.
    pub has_labels: bool,
    /// The evaluator of its CEL part; None leaves the choice to the engine.
    pub cel_evaluator: Option<CelEvaluator>,
}

/// Names of the members, in the order in which they are shown.
const MEMBERS: [&str; 15] = [
    "id",
    "gateway_id",
    "tenant",
    "collection",
    "types",
    "filters",
    "cel",
    "pattern",
    "topic",
    "topic_dialect",
    "dialect",
    "on_unknown",
    "transitions",
    "labels",
    "cel_evaluator",
];

type Result<T> = std::result::Result<T, SubscriptionError>;

/// The original members, with their types checked.
#[derive(Default)]
struct SubscriptionMembers<'t> {
    id: &'t str,
    gateway_id: Option<&'t str>,
    tenant: Option<&'t str>,
    collection: Option<&'t str>,
    types: Option<Vec<EventType>>,
    filters: Vec<NodeMembers<'t>>,
    cel: Option<&'t str>,
    pattern: Option<&'t Tree>,
    topic: Option<&'t str>,
    topic_dialect: Option<TopicDialect>,
    dialect: Dialect,
    on_unknown: OnUnknown,
    transitions: bool,
    has_labels: bool,
    cel_evaluator: Option<CelEvaluator>,
}

/// The defaults that a subscription gets from its engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults<'a> {
    /// The tenant; None if each subscription must have one.
    pub tenant: Option<&'a str>,
    /// The dialect of its topic pattern.
    pub topic_dialect: TopicDialect,
}

impl<'a> Defaults<'a> {
    /// This tenant, and the other defaults of an engine.
    pub fn of(tenant: &'a str) -> Defaults<'a> {
        Defaults { tenant: Some(tenant), ..Defaults::default() }
    }
}

impl Subscription {
    /// Read the JSON text of a subscription and check all of it but `cel`.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &[u8], defaults: Defaults<'_>, limits: &Limits) -> Result<Subscription> {
        let most = limits.max_subscription_bytes;
        if text.len() > most {
            let reason = format!("{} bytes of JSON text; at most {most} are allowed (limits.max_subscription_bytes)", text.len());
            return Err(SubscriptionError::new("", reason));
        }
        let tree: Tree = json::parse(text, ParseOptions::default()).map_err(|error| {
            let offset = error.offset.unwrap_or_default();
            SubscriptionError::new("", format!("{} ({} at byte {offset})", error.reason, error.code.as_str()))
        })?;
        Subscription::from_tree(&tree, defaults, limits).map_err(|error| SubscriptionError {
            subscription_id: match &tree {
                Tree::Object(members) => members.iter().rev().find(|(name, _)| &**name == "id").and_then(|(_, id)| text_of(id)),
                _ => None,
            }
            .map(str::to_owned),
            ..error
        })
    }

    fn from_tree(tree: &Tree, defaults: Defaults<'_>, limits: &Limits) -> Result<Subscription> {
        refuse_duplicates(tree)?;
        let Tree::Object(members) = tree else {
            return Err(SubscriptionError::new("", format!("expected an object, not {}", tree.json_type())));
        };
        let parsed = read_members(members)?;
        let Some(tenant) = parsed.tenant.or(defaults.tenant) else {
            let reason = "expected a tenant, since the engine has no default tenant; '*' means every tenant";
            return Err(SubscriptionError::new("tenant", reason));
        };
        let mut size = Size::default();
        let conditions = parsed.filters.iter().map(NodeMembers::count).sum();
        size.add_conditions(conditions, limits).map_err(|reason| SubscriptionError::new("filters", reason))?;
        let placed = || parsed.filters.iter().enumerate().map(|(at, node)| (FilterPlace::Filter(at), node));
        placed().try_for_each(|(place, node)| node.measure(place, &mut size, limits))?;
        let (mut filters, mut groups) = (Vec::with_capacity(parsed.filters.len()), Vec::new());
        for (place, node) in placed() {
            match node.parse(place, limits)? {
                FilterNode::Filter(filter) => filters.push(filter),
                group => groups.push(group),
            }
        }
        let topic_dialect = parsed.topic_dialect.unwrap_or(defaults.topic_dialect);
        let topic = parsed.topic.map(|text| TopicPattern::parse(text, topic_dialect));
        Ok(Subscription {
            id: parsed.id.into(),
            gateway_id: parsed.gateway_id.map(Box::from),
            tenant: tenant.into(),
            collection: parsed.collection.filter(|name| *name != "*").map(Box::from),
            types: parsed.types,
            filters,
            groups,
            pattern: parsed
                .pattern
                .map(|tree| patterns::parse_part(tree, parsed.dialect, limits, "pattern", size))
                .transpose()?,
            topic: topic.transpose().map_err(|reason| SubscriptionError::new("topic", reason))?,
            cel: parsed.cel.map(Box::from),
            on_unknown: parsed.on_unknown,
            transitions: parsed.transitions,
            has_labels: parsed.has_labels,
            cel_evaluator: parsed.cel_evaluator,
        })
    }
}

fn read_members(members: &[(Box<str>, Tree)]) -> Result<SubscriptionMembers<'_>> {
    for (name, _) in members {
        if !MEMBERS.contains(&&**name) {
            return Err(SubscriptionError::new(&**name, unknown_name(name, &MEMBERS, "member")));
        }
    }
    if !members.iter().any(|(name, _)| &**name == "id") {
        return Err(SubscriptionError::new("id", "expected a member 'id'"));
    }
    let mut result = SubscriptionMembers::default();
    for (place, value) in members {
        match &**place {
            "id" => result.id = nonempty(value, place)?,
            "gateway_id" => result.gateway_id = Some(text(value, place)?),
            "tenant" => result.tenant = Some(nonempty(value, place)?),
            "collection" => result.collection = Some(nonempty(value, place)?),
            "types" => result.types = Some(types(value, place)?),
            "filters" => {
                let filters = items(value, place)?.iter().enumerate();
                result.filters =
                    filters.map(|(at, entry)| NodeMembers::read(entry, FilterPlace::Filter(at), 0)).collect::<Result<_>>()?;
            }
            "cel" => result.cel = Some(text(value, place)?),
            "pattern" => match value {
                Tree::Object(_) | Tree::Scalar(Scalar::String(_)) => result.pattern = Some(value),
                _ => return Err(SubscriptionError::pattern(&**place, format!("expected an object, not {}", value.json_type()))),
            },
            "topic" => result.topic = Some(text(value, place)?),
            "topic_dialect" => result.topic_dialect = TopicDialect::of(one_of(value, place, &TopicDialect::NAMES)?),
            "dialect" => {
                result.dialect = match one_of(value, place, &["strict", "eventbridge"])? {
                    "strict" => Dialect::Strict,
                    _ => Dialect::EventBridge,
                }
            }
            "on_unknown" => {
                result.on_unknown = match one_of(value, place, &["deliver", "skip"])? {
                    "skip" => OnUnknown::Skip,
                    _ => OnUnknown::Deliver,
                }
            }
            "cel_evaluator" => {
                result.cel_evaluator = Some(match one_of(value, place, &["native", "portable"])? {
                    "portable" => CelEvaluator::Portable,
                    _ => CelEvaluator::Native,
                })
            }
            "transitions" => match value {
                Tree::Scalar(Scalar::Bool(wanted)) => result.transitions = *wanted,
                _ => return Err(SubscriptionError::new(&**place, format!("expected true or false, not {}", value.json_type()))),
            },
            _ => {
                if !matches!(value, Tree::Object(_)) {
                    return Err(SubscriptionError::new(&**place, format!("expected an object, not {}", value.json_type())));
                }
                result.has_labels = true;
            }
        }
    }
    Ok(result)
}

fn text_of(value: &Tree) -> Option<&str> {
    match value {
        Tree::Scalar(Scalar::String(text)) => Some(text),
        _ => None,
    }
}

fn text<'t>(value: &'t Tree, place: &str) -> Result<&'t str> {
    text_of(value).ok_or_else(|| SubscriptionError::new(place, format!("expected a string, not {}", value.json_type())))
}

fn nonempty<'t>(value: &'t Tree, place: &str) -> Result<&'t str> {
    match text(value, place)? {
        "" => Err(SubscriptionError::new(place, "expected a string that is not empty")),
        text => Ok(text),
    }
}

fn one_of<'t>(value: &'t Tree, place: &str, words: &[&str]) -> Result<&'t str> {
    let word = text(value, place)?;
    if words.contains(&word) { Ok(word) } else { Err(SubscriptionError::new(place, unknown_name(word, words, "value"))) }
}

fn items<'t>(value: &'t Tree, place: &str) -> Result<&'t [Tree]> {
    match value {
        Tree::List(items) => Ok(items),
        _ => Err(SubscriptionError::new(place, format!("expected a list, not {}", value.json_type()))),
    }
}

fn types(value: &Tree, place: &str) -> Result<Vec<EventType>> {
    let items = items(value, place)?;
    if items.is_empty() {
        return Err(SubscriptionError::new(place, "expected at least one type; leave the member out for all"));
    }
    let words = EventType::ALL.map(EventType::as_str);
    let named = items.iter().enumerate().map(|(at, item)| one_of(item, &format!("{place}[{at}]"), &words));
    let named = named.collect::<Result<Vec<_>>>()?;
    if let Some(at) = (0..named.len()).find(|at| named[..*at].contains(&named[*at])) {
        return Err(SubscriptionError::new(format!("{place}[{at}]"), format!("'{}' stands here twice", named[at])));
    }
    Ok(named.into_iter().filter_map(EventType::of).collect())
}

/// Refuse a duplicate name in one object, in the pattern as an error of the pattern. It does not recurse.
///
/// Places are linked, and spelled only for an error: a million values below a long name would cost a million copies of
/// it.
fn refuse_duplicates<'t>(tree: &'t Tree) -> Result<()> {
    let mut places: Vec<(usize, MemberStep<'t>)> = Vec::new(); // each with the place around it
    let mut pending = vec![(tree, ROOT)];
    check_names(tree, ROOT, &places)?;
    // In the order of the reference: the container found last comes first, and all objects in it before their members.
    while let Some((container, around)) = pending.pop() {
        let mut visit = |value: &'t Tree, step: MemberStep<'t>| -> Result<()> {
            if let Tree::Object(_) | Tree::List(_) = value {
                places.push((around, step));
                check_names(value, places.len() - 1, &places)?;
                pending.push((value, places.len() - 1));
            }
            Ok(())
        };
        match container {
            Tree::Object(members) => members.iter().try_for_each(|(name, value)| visit(value, MemberStep::Name(name)))?,
            Tree::List(elements) => {
                elements.iter().enumerate().try_for_each(|(at, value)| visit(value, MemberStep::Index(at)))?
            }
            Tree::Scalar(_) | Tree::BeyondFloat(_) => {}
        }
    }
    Ok(())
}

const ROOT: usize = usize::MAX;

#[derive(Clone, Copy)]
enum MemberStep<'t> {
    Name(&'t str),
    Index(usize),
}

fn check_names(value: &Tree, place: usize, places: &[(usize, MemberStep<'_>)]) -> Result<()> {
    let Tree::Object(members) = value else { return Ok(()) };
    let mut sorted: Vec<(&str, usize)> = members.iter().enumerate().map(|(at, (name, _))| (&**name, at)).collect();
    sorted.sort_unstable();
    let second = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1]).min_by_key(|(_, at)| *at);
    let Some((name, _)) = second else { return Ok(()) };
    let mut steps = vec![MemberStep::Name(name)];
    let mut at = place;
    while at != ROOT {
        steps.push(places[at].1);
        at = places[at].0;
    }
    let in_pattern = steps.len() > 1 && matches!(steps[steps.len() - 1], MemberStep::Name("pattern"));
    let mut text = String::new();
    for step in steps.iter().rev() {
        match step {
            MemberStep::Index(index) => text += &format!("[{index}]"),
            MemberStep::Name(name) if !is_identifier(name) => text += &format!("[{}]", quote(name)),
            MemberStep::Name(name) if text.is_empty() => text += name,
            MemberStep::Name(name) => text += &format!(".{name}"),
        }
    }
    let error = if in_pattern { SubscriptionError::pattern } else { SubscriptionError::new };
    Err(error(text, format!("the name '{name}' stands here twice")))
}
