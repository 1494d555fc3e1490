"""Features that the README names, and the tests on real servers that `scripts/test` runs of each.

`scripts/test --all` runs the others too. `python -m ureplicator_testkit.features` prints these, a line each.
"""

from __future__ import annotations

TESTS = {
    "whole batches, byte for byte and in order": (
        "integration/worker/test_raw_lane.py::test_every_record_arrives_once_in_order_byte_for_byte",
        "integration/worker/test_raw_lane.py::test_only_committed_records_of_transactions_arrive",
    ),
    "one owner for each partition": (
        "integration/worker/test_raw_lane_ownership.py::test_a_copier_that_thaws_never_commits",
        "integration/worker/test_raw_lane_ownership.py::test_sigkill_repeats_no_more_than_was_not_committed",
    ),
    "exactly once": (
        "integration/worker/test_exactly_once.py::test_a_copier_killed_again_and_again_repeats_nothing",
    ),
    "the same offsets": (
        "integration/worker/test_same_offsets.py::test_transactions_leave_control_records",
        "integration/worker/test_same_offsets_consumers.py::test_a_group_by_the_file_of_kafkas_own_tool",
    ),
    "versions of Kafka": (
        "integration/worker/test_kafka_versions.py::test_every_kind_of_batch_is_copied_once_and_in_order",
    ),
    "workers on Spark, ZooKeeper off the data path": (
        "integration/worker/test_worker_spark.py::test_an_assignment_is_online_at_once_spread_over_slots_and_released_when_removed",
        "integration/worker/test_worker_spark.py::test_without_zookeeper_copying_goes_on_and_a_new_session_publishes_everything",
        "integration/worker/test_worker_spark.py::test_pages",
    ),
    "leader and followers": (
        "integration/coordination/test_leadership.py::test_killed_leader_is_replaced_and_leaves_no_port_taken",
        "integration/coordination/test_contract.py::test_the_server_knows_our_session_by_the_same_id",
    ),
    "a fleet that grows and loses a worker": (
        "integration/fleet/shared/test_leave.py::test_share_of_a_worker_that_leaves_moves_at_once_and_without_a_repeat",
    ),
    "topics by REST": (
        "integration/fleet/test_rest.py::test_one_reads_what_one_wrote",
        "integration/fleet/test_topic_life.py::test_a_new_topic_is_copied_from_its_first_record_and_an_old_one_from_the_routes_start",
        "integration/fleet/test_topic_life.py::test_a_target_topic_of_others_gets_partitions_on_request_only",
    ),
    "dashboard": (
        "integration/rest/test_dashboard_in_browser.py::test_clicks_add_expand_and_delete_a_topic",
        "integration/rest/test_pages_in_browser.py::test_a_topic_shows_its_partitions_and_follows_them",
    ),
    "login": ("integration/rest/test_tokens.py::test_roles_over_a_socket",),
    "TLS and SASL": (
        "integration/security/test_secured_brokers.py::test_all_records_arrive_once_over_tls",
    ),
    "doctor": ("integration/doctor/test_doctor.py::test_healthy_servers",),
    "settings and rights of topics that follow": (
        "integration/kafka/test_config_sync.py::test_settings_follow_and_are_removed_again",
        "integration/kafka/test_acl_sync.py::test_rights_follow_and_only_they_are_removed_again",
    ),
    "offsets of groups that follow": (
        "integration/kafka/test_groups.py::test_a_plain_consumer_goes_on_at_the_target_with_exactly_the_rest",
        "integration/offset_map/test_offset_map.py::test_the_map_agrees_with_a_scan_of_both_clusters",
    ),
    "cutover": (
        "integration/cutover/test_there_and_back.py::test_writers_and_readers_move_there_and_back",
    ),
    "lag": ("integration/kafka/test_lag.py::test_lag_is_exact_after_a_copier_stopped",),
    "handlers": (
        "integration/worker/test_record_lane.py::test_a_fan_out_by_key_waits_for_all_its_topics",
    ),
    "queries": ("integration/sql/test_sql_lane.py::test_a_filter_and_a_projection",),
    "topics as DataFrames": (
        "integration/notebooks/test_kafka_batches.py::test_a_batch_holds_what_a_consumer_reads",
    ),
    "audit": (
        "integration/audit/test_audit.py::test_planted_differences_are_named_and_nothing_else",
    ),
    "access lists in ZooKeeper": (
        "integration/coordination/test_access.py::test_each_node_belongs_to_who_created_it",
    ),
    "claims between fleets": (
        "integration/kafka/test_claims.py::test_of_fleets_that_claim_at_once_one_gets_each_topic",
    ),
    "executors of a Spark cluster": (
        "integration/spark/test_shipping.py::test_copiers_run_from_an_archive_on_executors_of_one_core",
    ),
}

if __name__ == "__main__":
    for tests in TESTS.values():
        print(*(f"tests/{test}" for test in tests), sep="\n")
