//! Pages: well formed, self-contained, the same bytes for the same data, and proof against what they are told.

use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit};
use coptidice_report::metrics::{History, Record};
use coptidice_report::page::*;
use coptidice_report::svg::{Disc, DiscKind, PathGroup, PathMap};
use coptidice_report::table::{Cell, Column, Status, Table};

fn limit() -> LimitReading {
    let limit = CostLimit::new(0.1, LimitUnit::Step, EpisodeHorizon::Fixed(100.0)).expect("a proper limit");
    LimitReading::new("cost", limit, 100.0)
}

/// A page of every section, with `text` wherever a user's text can get.
fn page(text: &str, value: f64) -> Report {
    let reading = |evidence, upper_bound| CostReading {
        limit: LimitReading { cost: text.to_owned(), ..limit() },
        estimate: value,
        upper_bound,
        evidence,
        tolerance: 0.0,
    };
    let history = History::from_records(vec![Record {
        step: 0,
        values: vec![(text.to_owned(), value), ("b".to_owned(), 1.0)],
    }]);
    let data = DataSummary {
        source: text.to_owned(),
        transitions: 300,
        observation_dim: 2,
        action: ActionSummary::Discrete { count: 3 },
        lengths: vec![100.0, 150.0, 50.0],
        returns: vec![1.0, value, 3.0],
        costs: vec![CostSummary {
            name: text.to_owned(),
            per_step: value,
            per_episode: vec![0.0, value, 20.0],
            limit: Some(limit()),
        }],
    };
    let row = |policy: &str, costs| EvaluationRow {
        policy: policy.to_owned(),
        episodes: 10,
        return_mean: value,
        return_stderr: value,
        costs,
    };
    let cost = EvaluatedCost {
        per_step: value,
        per_step_stderr: value,
        per_episode: value,
        per_episode_stderr: value,
        share_over_limit: value,
    };
    let map = PathMap::new(text, (-1.0, 1.0), (-1.0, 1.0))
        .disc(Disc { kind: DiscKind::Goal, center: (0.0, 0.0), radius: 0.1, label: text.to_owned() })
        .paths(PathGroup::new(text, vec![vec![(0.0, value)]]));
    let problem = Problem {
        status: Status::Bad,
        code: text.to_owned(),
        place: text.to_owned(),
        message: text.to_owned(),
    };
    Report::new(text, text)
        .subtitle(text)
        .verdict(
            Verdict::new(text)
                .cost(reading(Evidence::Optimum, Some(value)))
                .cost(reading(Evidence::HeldOut { confidence: 0.95 }, None))
                .remark(text),
        )
        .key_figure(text, text, text)
        .section(
            Curves::new(text, &history)
                .curve(Curve::new(text, text).metric(text, text).reference(value, text)),
        )
        .section(&WeightSummary::of(&[0.0, 1.0, value]))
        .section(&data)
        .section(&Evaluation {
            environment: text.to_owned(),
            limits: vec![limit()],
            rows: vec![row(text, vec![cost]), row("short", vec![])],
        })
        .section(
            Section::new(text)
                .chart(&map)
                .wide(&map)
                .callout(Status::Warning, text)
                .cards([Card::new(text, text, "")]),
        )
        .section(
            Section::new(text).table(
                Table::new([Column::text(text)]).row([Cell::with_status(text, Status::Good)]).note(text),
            ),
        )
        .section(Problems(vec![problem]))
        .section(Problems::default())
        .section(Reproduce {
            command: text.to_owned(),
            config: text.to_owned(),
            facts: vec![(text.to_owned(), text.to_owned())],
        })
        .footer(text)
}

fn parse(html: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(html, options).expect("a well-formed page")
}

/// Whatever it is told, a page stays well formed and the text stays text.
#[test]
fn hostile_text_and_numbers_are_harmless() {
    let texts = [
        "plain",
        "",
        "</section><script>alert(1)</script><img src=x onerror=alert(1)>",
        "{{ 7*7 }} {% raw %} {# c #}",
        "\" onload=\"x\" ' & &amp; ]]> <!-- -->",
        "\u{0}\u{1b}[2J\u{7f}\u{ffff}\r\n\t",
        "λ ≤ 0.1 – 日本語 🚦 \u{202e}",
    ];
    let values = [0.05, 0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 1e-310];
    for text in texts {
        for value in values {
            let html = page(text, value).html().unwrap();
            let document = parse(&html);
            let tags = |name: &str| document.descendants().filter(|n| n.has_tag_name(name)).count();
            assert_eq!((tags("script"), tags("img"), tags("iframe"), tags("object")), (0, 0, 0, 0), "{text}");
            for node in document.descendants().filter(|n| n.is_element()) {
                for attribute in node.attributes() {
                    assert!(!attribute.name().starts_with("on"), "{attribute:?}");
                }
            }
            assert!(!html.contains("49") || !text.contains("7*7") || html.contains("{{ 7*7 }}"));
        }
    }
}

/// Nothing on the page makes a browser ask for anything: links lead to its own sections, and the style sheet
/// names no address.
#[test]
fn the_page_reaches_for_nothing() {
    let html = page("x", 0.05).html().unwrap();
    let document = parse(&html);
    let mut anchors = Vec::new();
    let mut links = Vec::new();
    for node in document.descendants().filter(|n| n.is_element()) {
        if let (true, Some(id)) = (node.has_tag_name("section"), node.attribute("id")) {
            anchors.push(format!("#{id}"));
        }
        for attribute in node.attributes() {
            match attribute.name() {
                "href" if attribute.value() == "data:," => {}
                "href" => links.push(attribute.value().to_owned()),
                name => assert!(!["src", "srcset", "data", "action", "xlink:href", "poster"].contains(&name)),
            }
        }
    }
    assert_eq!(links, anchors);
    for forbidden in ["http:", "https:", "url(", "@import", "@font-face", "<script"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn same_data_same_bytes() {
    assert_eq!(page("x", 0.05).html().unwrap(), page("x", 0.05).html().unwrap());
}

#[test]
fn the_optimum_is_not_sold_as_the_policy() {
    let reading = |evidence| CostReading {
        limit: limit(),
        estimate: 0.08,
        upper_bound: Some(0.09),
        evidence,
        tolerance: 0.0,
    };
    let html =
        |evidence| Report::new("k", "t").verdict(Verdict::new("m").cost(reading(evidence))).html().unwrap();
    assert!(html(Evidence::Optimum).contains("no measurement of the policy"));
    assert!(!html(Evidence::Simulated { episodes: 5 }).contains("no measurement of the policy"));
}

#[test]
fn sections_without_content_are_left_out() {
    let history = History::default();
    let html = Report::new("k", "t").section(Curves::new("Learning curves", &history)).html().unwrap();
    assert!(!html.contains("Learning curves"));
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    page("x", 0.05).write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page("x", 0.05).html().unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
    let error = page("x", 0.05).write(&directory.path().join("missing/report.html")).unwrap_err();
    assert!(error.to_string().contains("missing/report.html"));
}

#[test]
fn the_terminal_gets_the_same_story() {
    let evaluation = Evaluation {
        environment: "nav/hazard".to_owned(),
        limits: vec![LimitReading::new("cost", CostLimit::PerStep { limit: 0.02 }, 200.0)],
        rows: vec![
            EvaluationRow {
                policy: "bc".to_owned(),
                episodes: 50,
                return_mean: 101.3,
                return_stderr: 3.4,
                costs: vec![EvaluatedCost {
                    per_step: 0.081,
                    per_step_stderr: 0.01,
                    per_episode: 16.2,
                    per_episode_stderr: 2.0,
                    share_over_limit: 0.42,
                }],
            },
            EvaluationRow {
                policy: "coptidice".to_owned(),
                episodes: 50,
                return_mean: 131.8,
                return_stderr: 1.2,
                costs: vec![EvaluatedCost {
                    per_step: 0.004,
                    per_step_stderr: 0.002,
                    per_episode: 0.8,
                    per_episode_stderr: 0.4,
                    share_over_limit: 0.02,
                }],
            },
        ],
    };
    insta::assert_snapshot!(evaluation.table().to_text(Some(100)));
}
