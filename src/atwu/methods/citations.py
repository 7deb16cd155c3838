"""References of the methods, by the short form used in the table of methods."""

from __future__ import annotations

from collections.abc import Mapping

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
    "ATWU paper": (
        "Gizem Yüce, Giorgos Nikolaou, Nicolas Flammarion: Learning What to Forget: Improving LLM Unlearning via Learned "
        "Token-Level Importance. arXiv 2606.06320, 2026"
    ),
}
"""Authors, title, venue and arXiv number, where known."""
