"""Services that span hosts: each group is the hosts of one service, the first of them its head. See docs/scale.md."""

two_dgx_spark = ["spark-1.example", "spark-2.example"]
two_quad_3090 = ["quad-1.example", "quad-2.example"]
two_h100_sglang = ["hgx-1.example", "hgx-2.example"]
three_pro_6000_ray = ["ray-1.example", "ray-2.example", "ray-3.example"]
two_dual_3090_rpc = ["rpc-1.example", "rpc-2.example"]
