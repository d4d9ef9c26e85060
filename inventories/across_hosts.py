"""Multi-node services: each group is one node group, its first host the head. See docs/multi-node.md."""

two_dgx_spark = ["spark-1.example", "spark-2.example"]
two_quad_3090 = ["quad-1.example", "quad-2.example"]
two_h100_sglang = ["hgx-1.example", "hgx-2.example"]
three_pro_6000_ray = ["ray-1.example", "ray-2.example", "ray-3.example"]
two_dual_3090_rpc = ["rpc-1.example", "rpc-2.example"]
