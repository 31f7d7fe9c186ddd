//! Which nets contain an address? One lookup for each distinct length of net.
//!
//! ```text
//!   nets  10.0.0.0/8  10.1.0.0/16  2001:db8::/32
//!   "10.1.2.3" ─► IPv4 ─► masked to 8 bits: found;  masked to 16 bits: found
//! ```
//!
//! Invariant: nets are stored with their host bits zero; IPv4 and IPv6 never meet (`::ffff:10.0.0.1` is IPv6).
//!
//! Cost: a parse of the text, at most 33 or 129 lookups. 40 bytes a net.
//!
//! Rejected: a binary trie (a cache miss a bit).

use crate::automaton::table::Table;
use crate::subscriptions::normal_form::Cidr;
use crate::value::Seed;
use std::net::IpAddr;

/// The address that *text* is, without zone id or leading zeros.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    // The longest address has 45 characters; a longer text need not be looked at.
    if text.len() > 45 { None } else { text.parse().ok() }
}

/// The net of *length* bits that *address* lies in.
fn net_of(address: IpAddr, length: u8) -> Cidr {
    match address {
        IpAddr::V4(address) => Cidr::V4(u32::from(address) & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0), length),
        IpAddr::V6(address) => {
            Cidr::V6(u128::from(address) & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0), length)
        }
    }
}

/// Whether *address* lies in *net*.
pub fn net_holds(net: Cidr, address: IpAddr) -> bool {
    match (net, address) {
        (Cidr::V4(_, length), IpAddr::V4(_)) | (Cidr::V6(_, length), IpAddr::V6(_)) => net_of(address, length) == net,
        _ => false,
    }
}

/// An immutable set of nets. See the head of this file.
#[derive(Debug)]
pub struct Nets {
    seed: Seed,
    v4: Box<[u8]>, // the distinct lengths
    v6: Box<[u8]>,
    table: Table,
    groups: Box<[(Cidr, Box<[u32]>)]>,
}

fn hash(net: Cidr, seed: &Seed) -> u64 {
    match net {
        Cidr::V4(bits, length) => seed.hash_words(u64::from(bits), u64::from(length)),
        Cidr::V6(bits, length) => seed.hash_words(bits as u64, seed.hash_words((bits >> 64) as u64, 256 + u64::from(length))),
    }
}

impl Nets {
    /// Build from pairs of a net and the id to report for it.
    pub fn new(nets: impl IntoIterator<Item = (Cidr, u32)>, seed: Seed) -> Nets {
        let key = |net: &Cidr| match *net {
            Cidr::V4(bits, length) => (length, false, u128::from(bits)),
            Cidr::V6(bits, length) => (length, true, bits),
        };
        let mut nets: Vec<(Cidr, u32)> = nets.into_iter().collect();
        nets.sort_unstable_by_key(|(net, id)| (key(net), *id));
        let groups: Box<[(Cidr, Box<[u32]>)]> = nets
            .chunk_by(|left, right| left.0 == right.0)
            .map(|group| (group[0].0, group.iter().map(|(_, id)| *id).collect()))
            .collect();
        let lengths = |six: bool| {
            let mut lengths: Vec<u8> =
                groups.iter().map(|(net, _)| key(net)).filter(|key| key.1 == six).map(|key| key.0).collect();
            lengths.dedup();
            lengths.into_boxed_slice()
        };
        let entries: Vec<(u64, u32)> = groups.iter().zip(0..).map(|((net, _), at)| (hash(*net, &seed), at)).collect();
        Nets { v4: lengths(false), v6: lengths(true), table: Table::new(&entries), groups, seed }
    }

    /// Pass the ids of all nets that contain the address *text* to *hit*, each once. A text that is not an address is
    /// in no net.
    pub fn query(&self, text: &str, mut hit: impl FnMut(&[u32])) {
        let Some(address) = parse_address(text) else {
            return;
        };
        for &length in if address.is_ipv4() { &*self.v4 } else { &*self.v6 } {
            let net = net_of(address, length);
            if let Some(at) = self.table.find(hash(net, &self.seed), |at| self.groups[at as usize].0 == net) {
                hit(&self.groups[at as usize].1);
            }
        }
    }
}

/// The net that a text is in CIDR notation. Bits of the host may be set.
pub(crate) fn parse_network(text: &str) -> Option<Cidr> {
    let (address, length) = text.split_once('/')?;
    let plain = (1..=3).contains(&length.len()) && length.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (length.len() > 1 && length.starts_with('0')) {
        return None;
    }
    let length: u32 = length.parse().ok()?;
    match parse_address(address)? {
        IpAddr::V4(address) if length <= 32 => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            Some(Cidr::V4(u32::from(address) & mask, length as u8))
        }
        IpAddr::V6(address) if length <= 128 => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            Some(Cidr::V6(u128::from(address) & mask, length as u8))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::testing::Dice;

    #[test]
    fn nets_answer_as_a_scan_does() {
        let mut dice = Dice::new(10);
        let nets: Vec<Cidr> = (0..300)
            .map(|_| {
                let bits = dice.next() & 0x0F0F_0000_0F0F;
                if dice.chance(50) {
                    net_of(IpAddr::from((bits as u32).to_be_bytes()), dice.below(33) as u8)
                } else {
                    net_of(IpAddr::from((u128::from(bits) << 80).to_be_bytes()), dice.below(129) as u8)
                }
            })
            .collect();
        let built = Nets::new(nets.iter().copied().zip(0..), Seed::new(11));
        for _ in 0..2000 {
            let bits = dice.next() & 0x0F0F_0000_0F0F;
            let address = if dice.chance(50) {
                IpAddr::from((bits as u32).to_be_bytes())
            } else {
                IpAddr::from((u128::from(bits) << 80 | 1).to_be_bytes())
            };
            let mut found = Vec::new();
            built.query(&address.to_string(), |ids| found.extend_from_slice(ids));
            found.sort_unstable();
            let expected: Vec<u32> = (0..300).filter(|at| net_holds(nets[*at as usize], address)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_no_plain_address_is_in_no_net() {
        let all = Nets::new([(Cidr::V4(0, 0), 4), (Cidr::V6(0, 0), 6)], Seed::new(1));
        let found = |text: &str| {
            let mut found = Vec::new();
            all.query(text, |ids| found.extend_from_slice(ids));
            found
        };
        assert_eq!(found("10.0.0.1"), [4]);
        assert_eq!(found("::ffff:10.0.0.1"), [6]);
        for text in ["10.0.0.01", "10.0.0", "fe80::1%eth0", "", " 10.0.0.1", "10.0.0.1/8", "1"] {
            assert!(found(text).is_empty(), "{text}");
        }
    }
}
