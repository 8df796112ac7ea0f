"""Questions of documents on anonymity and differential privacy, and the fields of a report that answer them.

A row repeats a question in our words and names its place; nothing here decides whether an answer is enough. Facts about
the documents are those of docs/legal.md, which a test compares with this table.
"""

from typing import Final, NamedTuple


class Question(NamedTuple):
    """One thing that a document asks for.

    Attributes:
        place: The place in the document.
        asks: In our words.
        fields: Fields of the report that bear on it, as the index of a report names them.
        adds: Facts that only its reader can add; empty if nothing is missing.
    """

    place: str
    asks: str
    fields: tuple[str, ...]
    adds: str = ""


class Framework(NamedTuple):
    """A document whose questions a signer has to answer."""

    name: str
    source: str
    about: str
    questions: tuple[Question, ...]


_EDPB: Final = Framework(
    "EDPB Opinion 28/2024 on AI models",
    "https://www.edpb.europa.eu/our-work-tools/our-documents/opinion-board-art-64/"
    "opinion-282024-certain-data-protection-aspects_en",
    "Are generator and classifier anonymous models? The opinion asks for two things, for every person whose data "
    "were used: that extracting personal data from the model, and obtaining them by queries, is unlikely to a "
    "degree that is insignificant, with all means that anybody is reasonably likely to use. It is assessed case by "
    "case.",
    (
        Question(
            "section 3.2.2, direct extraction",
            "How likely is it that somebody extracts data of a person from the model's numbers?",
            ("F9", "F10", "F15"),
        ),
        Question(
            "section 3.2.2, queries",
            "How likely is it that outputs of the model, by intention or not, give away data of a person?",
            ("F9", "F15"),
            "Who can query the model, and what they know already.",
        ),
        Question(
            "model design: sources and minimisation",
            "Which data were used, and which steps limited them?",
            ("F1", "F5", "F14"),
            "Why these sources; whether names and other identifiers were burnt into the pixels.",
        ),
        Question(
            "model design: training",
            "Which method of training protects privacy, and with which parameters?",
            ("F2", "F6", "F7", "F10", "F11", "F12"),
        ),
        Question("model design: outputs", "Which measures apply to what the model gives out?", ("F15", "F21")),
        Question(
            "analysis and governance",
            "Were the design and its implementation reviewed and audited?",
            ("F12", "F13"),
            "Reviews and audits of your own; who approved the release.",
        ),
        Question(
            "testing and resistance to attacks",
            "Which attacks were tried: membership, attributes, inversion, reconstruction, regurgitation?",
            ("F9", "F23"),
            "Whether these attacks are enough for this use; `datalens audits submit` makes more.",
        ),
        Question(
            "documentation",
            "Is there documentation on impact assessment, advice of the data protection officer, measures, and "
            "resistance to identification?",
            ("F3", "F13", "F24", "F26"),
            "The impact assessment and the advice of the data protection officer.",
        ),
        Question(
            "question 4, lawful development",
            "Was the model developed from data that were processed lawfully?",
            (),
            "The legal basis; no figure can show it.",
        ),
    ),
)
_SRB: Final = Framework(
    "CJEU C-413/23 P (EDPS v SRB), 4 September 2025",
    "https://curia.europa.eu/juris/liste.jsf?num=C-413/23",
    "In whose hands? Whether data are personal can differ between whoever holds the means to identify somebody and a "
    "recipient who has none that are reasonably likely to be used. The duty to inform people about recipients is seen "
    "from the controller's side, when data are collected.",
    (
        Question(
            "in the hands of the organisation that uploads",
            "Does it hold means to identify people from the release?",
            ("F2", "F25"),
            "It holds the private images, as long as they are not deleted.",
        ),
        Question(
            "in the hands of a recipient",
            "Can the recipient reasonably identify somebody, alone or with what others hold?",
            ("F9", "F15", "F17"),
            "What the recipient has or may lawfully get; contracts that forbid attempts.",
        ),
        Question(
            "information of people",
            "Were people told, when their images were taken, about recipients?",
            (),
            "The notice that people got.",
        ),
    ),
)
_ISO: Final = Framework(
    "ISO/IEC 27559:2022, de-identification framework",
    "https://www.iso.org/standard/71677.html",
    "It asks for four assessments in turn: of context, of data, of identifiability, and of governance.",
    (
        Question(
            "6.2 threat modelling",
            "Who may try to identify somebody, with which motives, capacity and security practices?",
            ("F2",),
            "The recipients, their motives and their practices. Figures here hold against anybody.",
        ),
        Question(
            "6.3 transparency and impact",
            "Which harms are possible, and who was told?",
            ("F22", "F24"),
            "Harms to people and groups; stakeholders that were heard.",
        ),
        Question("7.2 data features", "Whose data, of which type and properties?", ("F1", "F3", "F5")),
        Question(
            "7.3 attack modelling", "Which risk model: maximum or average, which privacy model?", ("F2", "F4", "F9")
        ),
        Question("8.2.2 quantifying identifiability", "What is the risk in numbers?", ("F6", "F7", "F8", "F9")),
        Question("8.2.3 adversarial testing", "Was identification tried?", ("F23",)),
        Question("8.3 mitigation", "How are data and environment changed to lower the risk?", ("F10", "F11", "F15")),
        Question(
            "9.2 before data are made available",
            "Who is responsible, under which policy?",
            ("F18", "F26"),
            "Roles and the decision to release.",
        ),
        Question(
            "9.3 after, 9.4 incidents",
            "How are the environment watched and incidents handled?",
            ("F16", "F17", "F25"),
            "Who watches recipients; the plan for incidents. A release cannot be called back.",
        ),
    ),
)
_HIPAA: Final = Framework(
    "HIPAA expert determination, 45 CFR 164.514(b)(1)",
    "https://www.ecfr.gov/current/title-45/section-164.514",
    "A person with knowledge of and experience with generally accepted statistical and scientific principles "
    "determines that the risk is very small that an anticipated recipient identifies an individual, alone or with "
    "other information that is reasonably available, and documents methods and results. The rule names no number. "
    "This file is material for that person, and no determination.",
    (
        Question("(b)(1), the expert", "Who determines it?", (), "Name, knowledge and experience of the expert."),
        Question(
            "(b)(1), principles",
            "Which generally accepted principles and methods are applied?",
            ("F2", "F4", "F10", "F12"),
        ),
        Question(
            "(b)(1)(i), the risk",
            "How large is the risk that the information is used to identify an individual?",
            ("F7", "F9", "F23"),
            "Whether it is very small.",
        ),
        Question(
            "(b)(1)(i), recipients",
            "Who is anticipated to receive it, and what else is reasonably available to them?",
            ("F17",),
            "The recipients and other sources. Figures here hold whatever a recipient knows.",
        ),
        Question(
            "(b)(1)(ii), documentation",
            "Are methods and results of the analysis documented?",
            ("F10", "F12", "F13", "F26"),
            "The expert's signature, and for how long the determination holds.",
        ),
    ),
)
_NIST: Final = Framework(
    "NIST SP 800-226, guidelines for evaluating differential privacy guarantees",
    "https://doi.org/10.6028/NIST.SP.800-226",
    "Its pyramid has the parameters on top, what can undermine them in the middle, and the collection of data as "
    "its base. Each block depends on those below it.",
    (
        Question("privacy parameters", "Which ε and δ?", ("F6", "F7", "F8")),
        Question("unit of privacy", "Whom does the guarantee protect?", ("F3", "F4")),
        Question("algorithms and correctness", "Are the mechanisms and the accounting right?", ("F10", "F12", "F13")),
        Question(
            "utility and bias",
            "What is lost in accuracy, and for whom?",
            ("F21", "F22"),
            "Whether rare classes matter for this use.",
        ),
        Question("trust model", "Who is trusted, and with what?", ("F2",)),
        Question(
            "implementation: floating point, random numbers, side channels",
            "Which are closed, and how?",
            ("F11", "F13"),
        ),
        Question(
            "security and access control",
            "Who can reach the private data and the service?",
            ("F14", "F25"),
            "Access to the machine and the network; who holds keys.",
        ),
        Question("several releases", "How do losses add up?", ("F16", "F17", "F18")),
        Question(
            "exposure at collection",
            "What are people exposed to before any noise is drawn: how images were taken, moved and kept, who saw "
            "them, and was more collected than needed?",
            ("F2", "F14", "F25"),
            "How the images were collected, by whom, on which basis; who has copies outside of the service; when "
            "they are deleted there. Differential privacy protects nobody from the collection itself.",
        ),
    ),
)
FRAMEWORKS: Final = (_EDPB, _SRB, _ISO, _HIPAA, _NIST)
"""In the order of the evidence file and of docs/legal.md."""
