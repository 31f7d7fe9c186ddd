//! Subscriptions and events that are drawn, alike in every run.

/// A set of subscriptions, named for how many of 20,000 match an event, with the p50 and p99 in microseconds that the
/// prototype had on 1,000,000 of them, on another machine (an Intel Xeon of 2.5 GHz).
pub struct Set {
    pub name: &'static str,
    pub p50: f64,
    pub p99: f64,
}

pub const SETS: [Set; 5] = [
    Set { name: "none", p50: 0.59, p99: 0.75 },
    Set { name: "1.7", p50: 1.66, p99: 2.57 },
    Set { name: "17", p50: 1.35, p99: 1.75 },
    Set { name: "200", p50: 5.6, p99: 7.5 },
    Set { name: "2,000", p50: 10.5, p99: 14.0 },
];

const STATUSES: [&str; 8] = ["paid", "pending", "shipped", "cancelled", "refunded", "failed", "draft", "archived"];
const TIERS: [&str; 4] = ["free", "silver", "gold", "platinum"];

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below *end*, small ones more often, about as 1/n.
    fn skewed(&mut self, end: u64) -> u64 {
        (((self.unit() * (end as f64 + 1.0).ln()).exp() - 1.0) as u64).min(end - 1)
    }

    fn status(&mut self) -> String {
        STATUSES[self.below(8) as usize].into()
    }

    fn tier(&mut self) -> String {
        TIERS[self.below(4) as usize].into()
    }

    fn country(&mut self) -> String {
        format!("C{}", self.skewed(30))
    }

    fn user(&mut self) -> String {
        format!("u{}", 100_000 + self.below(200_000))
    }

    fn amount(&mut self) -> f64 {
        (self.unit() * 1_000_000.0).round() / 100.0
    }

    /// Two bounds between which a log-uniform share of the amounts lies.
    fn bounds(&mut self, least: f64, most: f64) -> (f64, f64) {
        let share = (least.ln() + self.unit() * (most.ln() - least.ln())).exp();
        let start = self.unit() * (1.0 - share);
        ((start * 1e6).round() / 100.0, ((start + share) * 1e6).round() / 100.0)
    }
}

/// The conditions of one subscription: filters, and fields of a pattern.
#[derive(Default)]
pub struct Conditions {
    filters: Vec<String>,
    data: Vec<String>,
    user: Vec<String>,
}

impl Conditions {
    fn filter(&mut self, field: &str, operator: &str, value: &str) {
        self.filters.push(format!(r#"{{"field":"{field}","op":"{operator}","value":{value}}}"#));
    }

    fn equal(&mut self, field: &str, value: &str) {
        self.filter(field, "==", &format!("\"{value}\""));
    }

    fn between(&mut self, dice: &mut Dice, least: f64, most: f64) {
        let (low, high) = dice.bounds(least, most);
        self.filter("amount", ">", &low.to_string());
        self.filter("amount", "<", &high.to_string());
    }

    /// A user or three, a prefix of them, or a range of amounts; in half of them a condition more that much meets.
    fn selective(&mut self, dice: &mut Dice, least: f64, most: f64) {
        match dice.below(10) {
            0..6 => {
                let users: Vec<String> = (0..=dice.below(3)).map(|_| format!("\"{}\"", dice.user())).collect();
                self.user.push(format!(r#""id":[{}]"#, users.join(",")));
            }
            6 | 7 => self.user.push(format!(r#""id":[{{"prefix":"{}"}}]"#, &dice.user()[..5])),
            _ => {
                let (low, high) = dice.bounds(least, most);
                self.data.push(format!(r#""amount":[{{"numeric":[">",{low},"<",{high}]}}]"#));
            }
        }
        match dice.below(6) {
            0 => {
                let at = dice.skewed(8) as usize;
                self.data.push(format!(r#""status":["{}","{}"]"#, STATUSES[at], STATUSES[(at + 1) % 8]));
            }
            1 => {
                let countries: Vec<String> = (0..=dice.below(3)).map(|_| format!("\"{}\"", dice.country())).collect();
                self.user.push(format!(r#""country":[{{"anything-but":[{}]}}]"#, countries.join(",")));
            }
            2 => self.data.push(r#""coupon":[{"exists":true}]"#.into()),
            _ => {}
        }
    }

    pub fn draw(dice: &mut Dice, set: &str) -> Conditions {
        let mut all = Conditions::default();
        match (set, dice.below(10)) {
            ("none", _) => all.equal("user.id", &format!("x{}", dice.below(1 << 40))),
            ("1.7", _) => all.selective(dice, 1e-5, 1e-3),
            ("17", _) => {
                // Conditions that many share: only together they are rare.
                all.equal("status", &dice.status());
                all.equal("user.country", &format!("C{}", dice.below(30)));
                all.equal("user.tier", &dice.tier());
                if dice.below(3) == 0 {
                    all.between(dice, 0.1, 0.5);
                }
            }
            ("200", 0..6) | ("2,000", 0..5) => all.selective(dice, 1e-3, 2e-1),
            ("200", 6..8) | ("2,000", 5) => {
                all.equal("user.country", &dice.country());
                all.between(dice, 0.05, 0.3);
            }
            ("200", _) => {
                all.equal("status", &dice.status());
                all.equal("user.tier", &dice.tier());
                all.between(dice, 0.05, 0.3);
            }
            (_, 6) => all.filter("amount", ">=", &dice.amount().to_string()),
            (_, 7 | 8) => all.equal("status", &dice.status()),
            _ => all.equal("user.country", &dice.country()),
        }
        all
    }

    /// The subscription's text; *twice* adds alternatives that all events meet, so that it is found in two ways.
    pub fn text(&self, number: usize, collection: usize, twice: bool) -> String {
        let mut data = self.data.clone();
        if !self.user.is_empty() {
            data.push(format!(r#""user":{{{}}}"#, self.user.join(",")));
        }
        let mut fields = Vec::new();
        if !data.is_empty() {
            fields.push(format!(r#""data":{{{}}}"#, data.join(",")));
        }
        if twice {
            fields.push(r#""$or":[{"type":["update"]},{"tenant":["t"]}]"#.into());
        }
        let pattern = if fields.is_empty() { String::new() } else { format!(r#","pattern":{{{}}}"#, fields.join(",")) };
        let filters = self.filters.join(",");
        format!(r#"{{"id":"s{number}","tenant":"t","collection":"c{collection}","filters":[{filters}]{pattern}}}"#)
    }
}

pub fn event(dice: &mut Dice, collections: usize) -> String {
    let coupon = if dice.below(10) == 0 { format!(r#""coupon":"C{}","#, dice.below(9999)) } else { String::new() };
    let item = |dice: &mut Dice| format!(r#"{{"sku":"SKU-{}","qty":{}}}"#, dice.below(999_999), dice.below(9));
    let items: Vec<String> = (0..=dice.below(3)).map(|_| item(dice)).collect();
    format!(
        r#"{{"id":"{:016x}","tenant":"t","collection":"c{}","type":"update","data":{{"status":"{}","amount":{},"user":{{"id":"{}","country":"{}","tier":"{}"}},{coupon}"tags":["tag{}","tag{}"],"items":[{}]}}}}"#,
        dice.next(),
        dice.below(collections as u64),
        dice.status(),
        dice.amount(),
        dice.user(),
        dice.country(),
        dice.tier(),
        dice.below(20),
        dice.below(20),
        items.join(",")
    )
}
