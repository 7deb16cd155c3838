"""Table of methods: each combines a token weighting, a forget loss and a retain loss, with published values and reference.

Components are named as in `component_registry.py`. The values of a method replace the defaults of its component classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from atwu._names import Registry
from atwu.methods.component import Range

Values = Mapping[str, float]
Ranges = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its components, source and default hyperparameters."""

    title: str
    weighting: str
    forget_loss: str
    retain_loss: str
    cite: str
    """Key of `CITATIONS`."""
    defaults: Values = field(default_factory=dict)
    """Default hyperparameters: the published values for TOFU on the 1B model (RMU: 8B), where they exist."""
    search: Ranges = field(default_factory=dict)
    """Published search ranges that differ from those of the components."""
    values_from: str | None = None
    """For a method without published values: the method whose values it uses, `CODE` for its published code, or `OURS`."""
    first_trial: Values = field(default_factory=dict)
    """Hyperparameters of the first trial of the published search, if known."""


def _weights(forget: float, retain: float, **values: float) -> Values:
    return {"forget_weight": forget, "retain_weight": retain, **values}


_PAPER = "ATWU paper"
_GRAD_DIFF = _weights(0.12, 0.80)
_DPO = _weights(3.80, 0.15, beta=0.21)
_NPO = _weights(0.12, 4.10, beta=0.10)
_SIMNPO = _weights(1.49, 1.28, beta=2.82, delta=0.03)
_WGA = _weights(1.16, 0.79, beta=2.14)
_ATWU = _weights(3.00, 0.50, beta=7.00)
CODE = "code"
"""`values_from` of a method that uses the values of its published code."""
OURS = "ours"
"""`values_from` of a method of which no values could be read."""
_WIDER: Ranges = {"beta": Range(1.0, 10.0, log=False)}

_SHIPPED = {
    "grad_ascent": Method("GradAscent", "uniform", "ga", "none", "Jang et al. 2023"),
    "grad_diff": Method(
        "GradDiff", "uniform", "ga", "nll", "Liu et al. 2022", _GRAD_DIFF, first_trial=_weights(0.5, 1.0)
    ),
    "dpo": Method("DPO", "uniform", "dpo", "nll", "Rafailov et al. 2023", _DPO, first_trial={"beta": 0.4}),
    "npo": Method("NPO", "uniform", "npo", "nll", "Zhang et al. 2024", _NPO, first_trial=_weights(1.0, 1.0, beta=0.1)),
    "simnpo": Method(
        "SimNPO",
        "uniform",
        "simnpo",
        "nll",
        "Fan et al. 2024",
        _SIMNPO,
        first_trial={"forget_weight": 0.125, "beta": 3.5, "delta": 0.0},  # beta lies outside its range
    ),
    "jensun": Method(
        "JensUn",
        "uniform",
        "js_refusal",
        "js",
        "Singh et al. 2025",
        _weights(0.82, 0.79),
        first_trial=_weights(0.5, 0.5),
    ),
    "rmu": Method(
        "RMU",
        "uniform",
        "steering",
        "activation",
        "Li et al. 2024",
        _weights(0.66, 1.27, steering_coeff=4.39, layer=4.0),
    ),
    "undial": Method(
        "UNDIAL",
        "uniform",
        "self_distillation",
        "nll",
        "Dong et al. 2025",
        _weights(1.0, 1.0, beta=10.0),
        values_from=CODE,
        first_trial=_weights(1.0, 1.0, beta=10.0),
    ),
    "fundial": Method(
        "FUNDIAL",
        "nouns",
        "masked_self_distillation",
        "nll",
        "Dong et al. 2025",
        _weights(0.157, 0.626, beta=11.6),
        first_trial=_weights(1.0, 1.0, beta=10.0),
    ),
    "wga": Method("WGA", "saturation", "ga", "nll", "Wang et al. 2025", _WGA, first_trial={"beta": 1.0}),
    "satimp": Method(
        "SatImp",
        "satimp",
        "ga",
        "nll",
        "Yang et al. 2025",
        _weights(0.87, 0.49, beta1=1.43, beta2=0.17),
        first_trial=_weights(1.0, 0.1, beta1=5.0, beta2=1.0),
    ),
    "etw": Method("ETW", "entropy", "ga", "nll", "Koh et al. 2026", _weights(0.033, 1.31, temperature=0.16)),
    "seul": Method(
        "SEUL", "logprob_mask", "masked_ga", "nll", "Wang et al. 2025b", _GRAD_DIFF, values_from="grad_diff"
    ),
    "su_llm": Method(
        "SU-LLM", "model_difference", "masked_ga", "nll", "Wan et al. 2025", _GRAD_DIFF, values_from="grad_diff"
    ),
    "su_ngram": Method(
        "SU-Ngram", "ngram_difference", "masked_ga", "nll", "Wan et al. 2025", _GRAD_DIFF, values_from="grad_diff"
    ),
    "satga": Method("SatGA", "uniform", "satga", "nll", "Wang et al. 2025", _WGA, values_from="wga"),
    "gt_ga": Method("GT-GA", "labels", "masked_ga", "nll", _PAPER, _GRAD_DIFF, values_from="grad_diff"),
    "gt_satga": Method(
        "GT-SatGA", "labels", "satga", "nll", _PAPER, _ATWU, {"beta": Range(0.1, 10.0)}, values_from="atwu"
    ),
    "atwu_ga": Method("ATWU-GA", "scorer", "ga", "nll", _PAPER, _weights(3.00, 0.50), values_from="atwu"),
    "atwu_satga": Method("ATWU-SatGA", "scorer", "satga", "nll", _PAPER, _ATWU, _WIDER, values_from="atwu"),
    "atwu": Method("ATWU", "scorer", "satga_plus", "nll", _PAPER, _ATWU, first_trial=_weights(5.0, 0.5, beta=5.0)),
    "atwu_dpo": Method("ATWU-DPO", "scorer", "dpo", "nll", _PAPER, _DPO, values_from="dpo"),
    "atwu_npo": Method("ATWU-NPO", "scorer", "npo", "nll", _PAPER, _NPO, values_from="npo"),
    "atwu_simnpo": Method("ATWU-SimNPO", "scorer", "simnpo", "nll", _PAPER, _SIMNPO, values_from="simnpo"),
    "ceu": Method("CE-U", "uniform", "ceu", "none", "Yang 2025", values_from=CODE),
    "me": Method("ME+GD", "uniform", "max_entropy", "nll", "Yuan et al. 2024", _weights(0.1, 1.0), values_from=CODE),
    "idk_ap": Method(
        "IDK+AP", "uniform", "refusal", "ap", "Yuan et al. 2024", _weights(1.0, 1.0, answer_beta=0.1), values_from=CODE
    ),
    "jensun_plus": Method(
        "JensUn++", "uniform", "js_refusal_row", "js_first", "Peleg et al. 2026", _weights(0.33, 1.0), values_from=CODE
    ),
    "bs_t": Method("BS-T", "uniform", "bootstrapping", "nll", "Li et al. 2025", values_from=CODE),
    "bs_s": Method("BS-S", "uniform", "sequence_bootstrapping", "nll", "Li et al. 2025", values_from=CODE),
    "flat": Method("FLAT", "uniform", "flat", "none", "Wang et al. 2025c", values_from=CODE),
    "altpo": Method(
        "AltPO",
        "uniform",
        "altpo",
        "nll",
        "Mekala et al. 2024",
        _weights(1.0, 1.0, beta=0.1),
        {"beta": Range(0.05, 0.5), "retain_weight": Range(1.0, 5.0)},
        values_from=CODE,
    ),
    "relearn": Method(
        "ReLearn", "uniform", "vague_answer", "kl_nll", "Xu et al. 2025", _weights(1.0, 1.0), values_from=CODE
    ),
    "lunar": Method(
        "LUNAR",
        "uniform",
        "redirection",
        "activation",
        "Shen et al. 2025",
        _weights(1.0, 1.0, redirect_coeff=2.0, layer=22.0),
        {"layer": Range(4, 24, log=False, integer=True)},
        values_from=CODE,
    ),
    "duet": Method("DUET", "uniform", "prompted_teacher", "top_logits", "Zhong et al. 2026", values_from=OURS),
    "asu": Method(
        "ASU", "uniform", "smoothed_attention", "nll", "Zare Zade et al. 2026", _weights(0.1, 1.0), values_from=CODE
    ),
    "elm": Method(
        "ELM", "uniform", "novice_teacher", "kl", "Gandikota et al. 2024", _weights(1.0, 1.0), values_from=CODE
    ),
    "pdu": Method(
        "PDU",
        "uniform",
        "logit_margin",
        "limited_nll",
        "Entesari et al. 2025",
        _weights(1.0, 100.0, retain_bound=0.3, dual_step=5.0, dual_warmup=5.0),
        {"retain_weight": Range(20.0, 200.0)},
        values_from=CODE,
    ),
}
METHODS = Registry[Method]("method", _SHIPPED)

CITATIONS: Mapping[str, str] = {
    "Jang et al. 2023": (
        "Joel Jang, Dongkeun Yoon, Sohee Yang, Sungmin Cha, Moontae Lee, Lajanugen Logeswaran, Minjoon Seo: "
        "Knowledge Unlearning for Mitigating Privacy Risks in Language Models. ACL 2023, arXiv 2210.01504"
    ),
    "Liu et al. 2022": (
        "Bo Liu, Qiang Liu, Peter Stone: Continual Learning and Private Unlearning. CoLLAs 2022, arXiv 2203.12817"
    ),
    "Rafailov et al. 2023": (
        "Rafael Rafailov, Archit Sharma, Eric Mitchell, Christopher D. Manning, Stefano Ermon, Chelsea Finn: "
        "Direct Preference Optimization: Your Language Model is Secretly a Reward Model. NeurIPS 2023"
    ),
    "Zhang et al. 2024": (
        "Ruiqi Zhang, Licong Lin, Yu Bai, Song Mei: "
        "Negative Preference Optimization: From Catastrophic Collapse to Effective Unlearning. arXiv 2404.05868"
    ),
    "Fan et al. 2024": (
        "Chongyu Fan, Jiancheng Liu, Licong Lin, Jinghan Jia, Ruiqi Zhang, Song Mei, Sijia Liu: Simplicity Prevails: "
        "Rethinking Negative Preference Optimization for LLM Unlearning. NeurIPS 2025, arXiv 2410.07163"
    ),
    "Singh et al. 2025": (
        "Naman Deep Singh, Maximilian Müller, Francesco Croce, Matthias Hein: Unlearning That Lasts: "
        "Utility-Preserving, Robust, and Almost Irreversible Forgetting in LLMs. arXiv 2509.02820"
    ),
    "Li et al. 2024": (
        "Nathaniel Li, Alexander Pan, Anjali Gopal, Summer Yue, Daniel Berrios, and others: "
        "The WMDP Benchmark: Measuring and Reducing Malicious Use With Unlearning. ICML 2024, arXiv 2403.03218"
    ),
    "Dong et al. 2025": (
        "Yijiang River Dong, Hongzhou Lin, Mikhail Belkin, Ramon Huerta, Ivan Vulić: UNDIAL: Self-Distillation with "
        "Adjusted Logits for Robust Unlearning in Large Language Models. NAACL 2025, arXiv 2402.10052"
    ),
    "Wang et al. 2025": (
        "Qizhou Wang, Jin Peng Zhou, Zhanke Zhou, Saebyeol Shin, Bo Han, Kilian Q. Weinberger: "
        "Rethinking LLM Unlearning Objectives: A Gradient Perspective and Go Beyond. ICLR 2025, arXiv 2502.19301"
    ),
    "Yang et al. 2025": (
        "Puning Yang, Qizhou Wang, Zhuo Huang, Tongliang Liu, Chengqi Zhang, Bo Han: "
        "Exploring Criteria of Loss Reweighting to Enhance LLM Unlearning. ICML 2025, arXiv 2505.11953"
    ),
    "Koh et al. 2026": (
        "Seunghee Koh, Sunghyun Baek, Youngdong Kim, Junmo Kim: "
        "Forget What Matters, Keep the Rest: Selective Unlearning of Informative Tokens. ACL 2026, arXiv 2604.17785"
    ),
    "Wang et al. 2025b": (
        "Lingzhi Wang, Xingshan Zeng, Jinsong Guo, Kam-Fai Wong, Georg Gottlob: Selective Forgetting: Advancing Machine "
        "Unlearning Techniques and Evaluation in Language Models. AAAI 2025, arXiv 2402.05813"
    ),
    "Wan et al. 2025": (
        "Yixin Wan, Anil Ramakrishna, Kai-Wei Chang, Volkan Cevher, Rahul Gupta: Not Every Token Needs Forgetting: "
        "Selective Unlearning Balancing Forgetting and Utility in Large Language Models. Findings of EMNLP 2025, "
        "arXiv 2506.00876"
    ),
    "Yang 2025": "Bo Yang: CE-U: Cross Entropy Unlearning. arXiv 2503.01224",
    "Yuan et al. 2024": (
        "Xiaojian Yuan, Tianyu Pang, Chao Du, Kejiang Chen, Weiming Zhang, Min Lin: "
        "A Closer Look at Machine Unlearning for Large Language Models. ICLR 2025, arXiv 2410.08109"
    ),
    "Li et al. 2025": (
        "Kemou Li, Qizhou Wang, Yue Wang, Fengpeng Li, Jun Liu, Bo Han, Jiantao Zhou: "
        "LLM Unlearning with LLM Beliefs. ICLR 2026, arXiv 2510.19422"
    ),
    "Wang et al. 2025c": (
        "Yaxuan Wang, Jiaheng Wei, Chris Yuhao Liu, Jinlong Pang, Quan Liu, Ankit Parag Shah, Yujia Bao, Yang Liu, "
        "Wei Wei: LLM Unlearning via Loss Adjustment with Only Forget Data. ICLR 2025, arXiv 2410.11143"
    ),
    "Entesari et al. 2025": (
        "Taha Entesari, Arman Hatami, Rinat Khaziev, Anil Ramakrishna, Mahyar Fazlyab: "
        "Constrained Entropic Unlearning: A Primal-Dual Framework for Large Language Models. arXiv 2506.05314"
    ),
    "Mekala et al. 2024": (
        "Anmol Mekala, Vineeth Dorna, Shreya Dubey, Abhishek Lalwani, David Koleczek, Mukund Rungta, Sadid Hasan, Elita Lobo: "
        "Alternate Preference Optimization for Unlearning Factual Knowledge in Large Language Models. COLING 2025, "
        "arXiv 2409.13474"
    ),
    "Xu et al. 2025": (
        "Haoming Xu, Ningyuan Zhao, Liming Yang, Sendong Zhao, Shumin Deng, Mengru Wang, Bryan Hooi, Nay Oo, Huajun Chen, "
        "Ningyu Zhang: ReLearn: Unlearning via Learning for Large Language Models. ACL 2025, arXiv 2502.11190"
    ),
    "Shen et al. 2025": (
        "William F. Shen, Xinchi Qiu, Meghdad Kurmanji, Alex Iacob, Lorenzo Sani, Yihong Chen, Nicola Cancedda, "
        "Nicholas D. Lane: LLM Unlearning via Neural Activation Redirection. NeurIPS 2025, arXiv 2502.07218"
    ),
    "Zhong et al. 2026": (
        "Yisheng Zhong, Zhengbang Yang, Zhuangdi Zhu: DUET: Distilled LLM Unlearning from an Efficiently Contextualized "
        "Teacher. ICLR 2026, arXiv 2601.21283"
    ),
    "Zare Zade et al. 2026": (
        "Saleh Zare Zade, Xiangyu Zhou, Sijia Liu, Dongxiao Zhu: Attention Smoothing Is All You Need For Unlearning. "
        "ICLR 2026, arXiv 2603.01285"
    ),
    "Gandikota et al. 2024": (
        "Rohit Gandikota, Sheridan Feucht, Samuel Marks, David Bau: Erasing Conceptual Knowledge from Language Models. "
        "arXiv 2410.02760"
    ),
    "Peleg et al. 2026": (
        "Amit Peleg, Naman Deep Singh, Naama Pearl, Bibhabasu Mohapatra, Matthias Hein: Forget Narrowly, Retain Broadly: "
        "Unlearning as an Asymmetric Generalization Problem. arXiv 2607.09236, 2026"
    ),
    "ATWU paper": (
        "Gizem Yüce, Giorgos Nikolaou, Nicolas Flammarion: Learning What to Forget: Improving LLM Unlearning via Learned "
        "Token-Level Importance. arXiv 2606.06320, 2026"
    ),
}
"""Authors, title, venue and arXiv number, where known."""
